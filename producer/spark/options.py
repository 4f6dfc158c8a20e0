"""Options of ``format("loghub")``: their names, what they mean, and how their text becomes a configuration.

Spark hands options over as text and does not tell ``topicColumn`` from ``topiccolumn``; here they have the spelling of
the documentation again. Names of Spark's side are written as Spark writes them; the producer's own options
(``linger_ms``, ``http.verify``, …) keep theirs.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from ..model.config import MAX_BATCH_COUNT, ProducerConfig, ProjectConfig, producer_options
from ..model.credentials import Credentials, EnvironmentCredentials, StaticCredentials
from ..model.errors import ConfigError
from ..model.interfaces import CredentialsProvider
from ..model.options import Option, table, unknown
from ..text.names import LOGSTORE_RULE, is_logstore_name
from ..wire.cursors import MAX_PULL_COUNT

#: How long a task waits for the next acknowledgement, seconds.
ACK_TIMEOUT = 600.0
#: The requests of ``exactlyOnce`` are cut by these: rows, and bytes before compression.
CHUNK_ROWS, CHUNK_BYTES = 16_384, 2 << 20
#: A request's body may not be larger, whatever is asked for, bytes.
MAX_CHUNK_BYTES = 4 << 20
#: Of a shard: each is a look-up when the read is planned.
MAX_PARTITIONS = 1_000
#: Between the time of a log and that of its receipt: a hundred years.
MAX_SECONDS = 100 * 366 * 86_400

#: The options that reading and writing share.
TARGET_OPTIONS = table(
    endpoint=Option("such as https://cn-hangzhou.log.aliyuncs.com", default=...),
    project=Option("the project", default=...),
    logstore=Option("the logstore", default=...),
    accessKeyId=Option("with accessKeySecret: who signs; without both, what the environment of the executors says"),
    accessKeySecret=Option(
        "see accessKeyId; without both: LOGHUB_ACCESS_KEY_ID and LOGHUB_ACCESS_KEY_SECRET there", secret=True
    ),
    securityToken=Option("of temporary credentials; without it LOGHUB_SECURITY_TOKEN there", secret=True),
    credentialsProvider=Option("package.module:name of a credentials provider, or of what makes one without arguments"),
)

#: The options of a write, besides the target's and the producer's own.
WRITE_OPTIONS = table(
    topic=Option("the topic of rows without one of their own", default=""),
    source=Option("the source of rows without one of their own; None is the worker's address"),
    topicColumn=Option("a column of text whose values are the rows' topics; not a field then, as are the next four"),
    sourceColumn=Option("a column of text whose values are the rows' sources"),
    timeColumn=Option("a timestamp, or an integer of Unix seconds: the rows' times; without it the time of sending"),
    shardHashColumn=Option("a column of text; rows with equal values go to the same shard"),
    contentsColumn=Option(
        "a map of text to values, whose entries become fields of the row: what reading gives as contents"
    ),
    rowLabels=Option(
        "columns, separated by commas, whose values name a row in errors, beside its number in the partition",
        default="",
    ),
    onFailure=Option(
        "of a row that LogHub refuses: fail the task, put it into deadLetterPath, or drop it",
        kind=Literal["fail", "deadletter", "drop"],
        default="fail",
    ),
    deadLetterPath=Option(
        "a directory that all executors reach, or a URI such as hdfs://…, for refused rows, as Parquet; with "
        "onFailure=deadletter"
    ),
    deliveryGuarantee=Option(
        "how often a row is stored", kind=Literal["atLeastOnce", "exactlyOnce"], default="atLeastOnce"
    ),
    runId=Option(
        "the name of this write for exactlyOnce: a run with the same name adds only what is missing; without it, "
        "of a stream the query's id, of a batch made up"
    ),
    chunkRows=Option(
        "exactlyOnce: rows of a request at most", kind=int, default=CHUNK_ROWS, least=1, most=MAX_BATCH_COUNT
    ),
    chunkBytes=Option(
        "exactlyOnce: bytes of a request at most, before compression",
        kind=int,
        default=CHUNK_BYTES,
        least=1,
        most=MAX_CHUNK_BYTES,
        unit="bytes",
    ),
    ackTimeout=Option(
        "how long a task waits for the next acknowledgement, and for memory",
        kind=float,
        default=ACK_TIMEOUT,
        least=0.001,
        most=86_400,
        unit="seconds",
    ),
    metricsPath=Option(
        "a file on the driver; a line of JSON is added for each write or micro-batch, also for a failed one"
    ),
    checkTarget=Option(
        "ask LogHub for the logstore's shards before the job begins; a key that may only write is no error. Of a "
        "stream before its first micro-batch, and again before one that comes a minute after the last",
        kind=bool,
        default=True,
    ),
)

#: The options of reading, besides those that name the logstore.
READ_OPTIONS = table(
    startingOffsets=Option(
        "where to begin: earliest (the default of a batch), latest (of a stream), Unix seconds, a time, or JSON "
        "of shard and cursor. A stream with a checkpoint goes on where that ends"
    ),
    endingOffsets=Option(
        "where a batch ends: latest (the default), Unix seconds, a time, or JSON of shard and cursor; what lies "
        "at that place is not read any more"
    ),
    shards=Option("only these shards, such as 0,3; without it all"),
    mode=Option(
        "PERMISSIVE: a value that is not of its column's type is null; FAILFAST: it is an error",
        kind=Literal["PERMISSIVE", "FAILFAST"],
        default="PERMISSIVE",
    ),
    maxRowsPerTrigger=Option(
        "the rows of a micro-batch, at most, at whole LogGroups; a LogGroup with more comes alone. The driver "
        "counts them by reading them first. None is no limit",
        kind=int,
        least=1,
    ),
    maxSecondsPerTrigger=Option(
        "in a micro-batch only what each shard received within so many seconds of its first LogGroup; None is no limit",
        kind=int,
        least=1,
        unit="seconds",
    ),
    pullCount=Option(
        "LogGroups in one request; the server gives about 10 MiB at most",
        kind=int,
        default=MAX_PULL_COUNT,
        least=1,
        most=MAX_PULL_COUNT,
    ),
    partitionsPerShard=Option(
        "of a batch: into about so many partitions each shard is divided, so that more cores read it; by the "
        "time of receipt, to the second: busy periods give larger partitions. None is 1",
        kind=int,
        least=1,
        most=MAX_PARTITIONS,
    ),
    query=Option("of a batch: only logs that match, in LogHub's query language; needs startingTime"),
    startingTime=Option("with query: the first time of logs, Unix seconds or as 2026-01-31T12:00:00Z"),
    endingTime=Option("with query: logs before this time; without it, now"),
    pushFilters=Option("a batch applies the conditions of WHERE itself; needs PySpark 4.1", kind=bool, default=False),
    receivedWithin=Option(
        "with pushFilters: the time between a log's time and its receipt, at most, so that a condition on "
        "__time__ says what need not be read; None is no limit",
        kind=int,
        least=1,
        most=MAX_SECONDS,
        unit="seconds",
    ),
)

#: What Spark itself adds, or reads, among the options of a data source. A table of ``CREATE TABLE`` has each of its
#: options twice, once with ``option.`` before its name.
_SPARKS_OWN = ("checkpointlocation", "queryname", "serialization.format", "provider", "owner", "outputmode")
_SPARKS_PREFIX = "option."

# Spark 4.3 hands the options of a table of ``CREATE TABLE`` to nobody.
_INSERT_HINT = (
    "no options came at all, as with a table of CREATE TABLE: make a view of it, CREATE TEMPORARY VIEW v USING loghub "
    "OPTIONS (…), to read and to insert; or give them as INSERT INTO t WITH (`endpoint`='…', …) SELECT … and as "
    "SELECT … FROM t WITH (…)"
)


def documented(options: Mapping[str, str], known: Iterable[str], *, others: Iterable[str] = ()) -> dict[str, str]:
    """The options in the spelling of the documentation.

    :param options: as Spark hands them over.
    :param known: every name that means something.
    :param others: names that mean something elsewhere, and are left out: a view of SQL is read with the same options
        as it is written.
    :raises ConfigError: an unknown option, with the near ones; or one that Spark made of a path.
    """
    spelling = {name.lower(): name for name in known}
    elsewhere = {name.lower() for name in others} - spelling.keys()
    found = {}
    for given, value in options.items():
        name = given.lower()
        if name in _SPARKS_OWN or name in elsewhere or name.startswith(_SPARKS_PREFIX):
            continue
        if name == "path":
            raise ConfigError(
                "path",
                "LogHub has no paths: use save() without one, and the options endpoint, project and logstore",
                value,
            )
        if name not in spelling:
            raise unknown(given, spelling.values())
        found[spelling[name]] = value
    return found


def values_of(table: Mapping[str, Option], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the value or the default of each option.

    :param given: options in the spelling of the documentation.
    :raises ConfigError: a value breaks its rule.
    """
    return {name: each.check(given[name], text=True) if name in given else each.default for name, each in table.items()}


def producer_option_names() -> tuple[str, ...]:
    """The names of the producer's own options."""
    return tuple(name for name in producer_options() if name not in ("http", "retry_policy"))


@dataclass(frozen=True, slots=True)
class Target:
    """A logstore, and who signs.

    :ivar project: the project, its endpoint, its credentials.
    :ivar logstore: the logstore.
    """

    project: ProjectConfig
    logstore: str

    def __str__(self) -> str:
        return f"{self.project.project}/{self.logstore} at {self.project.endpoint}"


def target_of(options: Mapping[str, str]) -> Target:
    """The logstore that the options name.

    :param options: in the spelling of the documentation.
    :raises ConfigError: one is missing or wrong.
    """
    for name in ("endpoint", "project", "logstore"):
        if not options.get(name, "").strip():
            hint = "" if options else f" ({_INSERT_HINT})"
            raise ConfigError(name, f"is required: {TARGET_OPTIONS[name].doc}{hint}", name)
    project = ProjectConfig(options["project"].strip(), endpoint=options["endpoint"], credentials=_provider_of(options))
    logstore = options["logstore"].strip()
    if not is_logstore_name(logstore):
        raise ConfigError("logstore", LOGSTORE_RULE, logstore)
    return Target(project, logstore)


def _provider_of(options: Mapping[str, str]) -> CredentialsProvider:
    static = [name for name in ("accessKeyId", "accessKeySecret") if options.get(name)]
    path = options.get("credentialsProvider")
    if path:
        if static:
            raise ConfigError("credentialsProvider", f"must not be given together with {static[0]}", path)
        return ImportedCredentials(path)
    if not static:
        return EnvironmentCredentials()
    if len(static) == 1:
        missing = "accessKeySecret" if static[0] == "accessKeyId" else "accessKeyId"
        raise ConfigError(missing, f"must be given together with {static[0]}", missing)
    return StaticCredentials(
        credentials=Credentials(
            access_key_id=options["accessKeyId"],
            access_key_secret=options["accessKeySecret"],
            security_token=options.get("securityToken") or None,
        )
    )


#: The providers that were imported in this process, by path.
_imported: dict[str, CredentialsProvider] = {}


@dataclass(frozen=True, slots=True)
class ImportedCredentials:
    """A provider known by its import path, so that what travels to the executors holds no secret.

    :ivar path: ``package.module:name``; what has that name is a provider, or makes one when called without arguments.
    """

    path: str

    def __post_init__(self) -> None:
        module, colon, name = self.path.partition(":")
        if not (module and colon and name):
            rule = "must be package.module:name of a credentials provider, or of what makes one"
            raise ConfigError("credentialsProvider", rule, self.path)

    def get_credentials(self) -> Credentials:
        """Ask the provider, which is imported once a process.

        :raises ConfigError: it cannot be imported, or is none.
        """
        provider = _imported.get(self.path)
        if provider is None:
            provider = _imported[self.path] = self._import()
        return provider.get_credentials()

    def _import(self) -> CredentialsProvider:
        module, _, name = self.path.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            rule = f"must be importable on the driver and the executors ({error})"
            raise ConfigError("credentialsProvider", rule, self.path) from error
        if isinstance(found, type) or not hasattr(found, "get_credentials"):
            found = found() if callable(found) else found
        if not hasattr(found, "get_credentials"):
            raise ConfigError("credentialsProvider", "must have get_credentials()", self.path)
        return cast("CredentialsProvider", found)


def knows_credentials(target: Target) -> bool:
    """Whether this process can sign: what only the executors' environment knows, the driver cannot try."""
    provider = target.project.credentials
    return not isinstance(provider, EnvironmentCredentials) or bool(
        os.environ.get(provider.prefix + "ACCESS_KEY_ID") and os.environ.get(provider.prefix + "ACCESS_KEY_SECRET")
    )


def producer_config(options: Mapping[str, str], **defaults: object) -> ProducerConfig:
    """The producer's configuration, of the options that are its own.

    :param options: in the spelling of the documentation; others are left alone.
    :param defaults: of options that are not given.
    :raises ConfigError: a value is wrong.
    """
    own = {name: options[name] for name in producer_option_names() if name in options}
    return ProducerConfig.from_mapping({**defaults, **own})
