"""The options of ``format("loghub")``, and how their text becomes a configuration.

Spark passes options as text and ignores the case of their names; :func:`documented` restores the documented spelling.
The connector's names are in Spark's style; the producer's own options (``linger_ms``, ``http.verify``, …) keep theirs.

The file is long because it holds the tables of all options.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from ..model.config import MAX_BATCH_COUNT, ProducerConfig, ProjectConfig, producer_options
from ..model.credentials import CREDENTIALS_NAMES, Credentials, EnvironmentCredentials, StaticCredentials
from ..model.errors import ConfigError, CredentialsError, ProducerError
from ..model.interfaces import CredentialsProvider
from ..model.options import Option, table, unknown
from ..sinks.loghub.credentials.names import provider_of
from ..text.names import LOGSTORE_RULE, is_logstore_name
from ..wire.cursors import MAX_PULL_COUNT

#: The longest wait of a task for the next acknowledgement, seconds.
ACK_TIMEOUT = 600.0
#: The limits of a request of ``exactlyOnce``: rows, and bytes before compression.
CHUNK_ROWS, CHUNK_BYTES = 16_384, 2 << 20
#: The largest permitted ``chunkBytes``.
MAX_CHUNK_BYTES = 4 << 20
#: The limit of partitions of a shard: each costs a request when the read is planned.
MAX_PARTITIONS = 1_000
#: The largest ``receivedWithin``: a hundred years.
MAX_SECONDS = 100 * 366 * 86_400

#: The handling of a row that LogHub refuses, and the delivery guarantee of a row.
OnFailure = Literal["fail", "deadletter", "drop"]
Guarantee = Literal["atLeastOnce", "exactlyOnce"]

#: The options that reading and writing share.
TARGET_OPTIONS = table(
    endpoint=Option(
        "such as https://cn-hangzhou.log.aliyuncs.com; several of the project are separated by commas, and the first "
        "that answers is used",
        default=...,
    ),
    project=Option("the project", default=...),
    logstore=Option("the logstore", default=...),
    accessKeyId=Option("the access key id, with accessKeySecret; without both, the executors' environment has them"),
    accessKeySecret=Option("its secret; without both, LOGHUB_ACCESS_KEY_ID and LOGHUB_ACCESS_KEY_SECRET", secret=True),
    securityToken=Option("the token of temporary credentials; without it LOGHUB_SECURITY_TOKEN", secret=True),
    credentials=Option(f"each executor's source of the key, in place of one: {CREDENTIALS_NAMES}"),
    credentialsProvider=Option("package.module:name of a credentials provider, or of a function that makes one"),
)

#: The options of a write, besides the target's and the producer's own.
WRITE_OPTIONS = table(
    topic=Option("the topic of rows without one of their own", default=""),
    source=Option("the source of rows without one of their own; None for the worker's address"),
    topicColumn=Option("a column of text whose values are the rows' topics; not a field then, as are the next four"),
    sourceColumn=Option("a column of text whose values are the rows' sources"),
    timeColumn=Option("a timestamp, or an integer of Unix seconds: the rows' times; without it the time of sending"),
    shardHashColumn=Option("a column of text; rows with equal values go to the same shard"),
    contentsColumn=Option(
        "a map of text to values, whose entries become fields of the row, as reading returns it in contents"
    ),
    rowLabels=Option(
        "columns, separated by commas, whose values name a row in errors, beside its number in the partition",
        default="",
    ),
    onFailure=Option(
        "for a row that LogHub refuses: fail the task, store the row in deadLetterPath, or drop it",
        kind=OnFailure,
        default="fail",
    ),
    deadLetterPath=Option(
        "a directory that all executors reach, or a URI such as hdfs://…, for refused rows, as Parquet; with "
        "onFailure=deadletter"
    ),
    deliveryGuarantee=Option("the delivery guarantee of a row", kind=Guarantee, default="atLeastOnce"),
    runId=Option(
        "the name of this write for exactlyOnce: a run with the same name adds only missing rows; by default "
        "the id of a streaming query, and a random name for a batch"
    ),
    chunkRows=Option(
        "exactlyOnce: the maximum number of rows of a request",
        kind=int,
        default=CHUNK_ROWS,
        least=1,
        most=MAX_BATCH_COUNT,
    ),
    chunkBytes=Option(
        "exactlyOnce: the maximum bytes of a request, before compression",
        kind=int,
        default=CHUNK_BYTES,
        least=1,
        most=MAX_CHUNK_BYTES,
        unit="bytes",
    ),
    ackTimeout=Option(
        "the longest wait of a task for the next acknowledgement, and for memory",
        kind=float,
        default=ACK_TIMEOUT,
        least=0.001,
        most=86_400,
        unit="seconds",
    ),
    metricsPath=Option(
        "a file on the driver that gets a line of JSON for each write or micro-batch, also for a failed one"
    ),
    checkTarget=Option(
        "query LogHub for the logstore's shards before the job; a key that may only write is accepted. A stream is "
        "checked before its first micro-batch, and again after a minute without one",
        kind=bool,
        default=True,
    ),
)

#: The options of reading, besides those that name the logstore.
READ_OPTIONS = table(
    startingOffsets=Option(
        "where to begin: earliest (the default of a batch), latest (of a stream), Unix seconds, a time, or JSON "
        "of shard and cursor. A stream with a checkpoint continues there"
    ),
    endingOffsets=Option(
        "where a batch ends: latest (the default), Unix seconds, a time, or JSON of shard and cursor. The end is "
        "exclusive"
    ),
    shards=Option("the shards to read, such as 0,3; by default all"),
    mode=Option(
        "for a value that does not match its column's type: PERMISSIVE reads null, FAILFAST fails",
        kind=Literal["PERMISSIVE", "FAILFAST"],
        default="PERMISSIVE",
    ),
    maxRowsPerTrigger=Option(
        "the maximum number of rows of a micro-batch, in whole LogGroups; a larger LogGroup comes alone. The driver "
        "counts the rows by reading them first. None for no limit",
        kind=int,
        least=1,
    ),
    maxSecondsPerTrigger=Option(
        "the time of receipt that a micro-batch covers in each shard, from its first LogGroup; None for no limit",
        kind=int,
        least=1,
        unit="seconds",
    ),
    pullCount=Option(
        "LogGroups in one request; the server returns about 10 MiB at most",
        kind=int,
        default=MAX_PULL_COUNT,
        least=1,
        most=MAX_PULL_COUNT,
    ),
    partitionsPerShard=Option(
        "for a batch: the approximate number of partitions of each shard, so that more cores read it. They are equal "
        "in time of receipt: busy periods give larger partitions. None is 1",
        kind=int,
        least=1,
        most=MAX_PARTITIONS,
    ),
    query=Option("for a batch: a query in LogHub's language that logs must match; needs startingTime"),
    startingTime=Option("with query: the first time of logs, Unix seconds or a time such as 2026-01-31T12:00:00Z"),
    endingTime=Option("with query: the end of the logs' times, exclusive; by default now"),
    pushFilters=Option("a batch applies the conditions of WHERE itself; needs PySpark 4.1", kind=bool, default=False),
    receivedWithin=Option(
        "with pushFilters: the longest time between a log's time and its receipt, so that a condition on "
        "__time__ limits the read; None for no limit",
        kind=int,
        least=1,
        most=MAX_SECONDS,
        unit="seconds",
    ),
)

#: Spark's own options of a data source. A table of ``CREATE TABLE`` has each option twice, once with the prefix
#: ``option.``.
_SPARKS_OWN = ("checkpointlocation", "queryname", "serialization.format", "provider", "owner", "outputmode")
_SPARKS_PREFIX = "option."

# Spark 4.3 does not pass on the options of a table of ``CREATE TABLE``.
_INSERT_HINT = (
    "Spark passed no options, as for a table of CREATE TABLE: use a view, CREATE TEMPORARY VIEW v USING loghub "
    "OPTIONS (…), to read and to insert; or give the options as INSERT INTO t WITH (`endpoint`='…', …) SELECT … and "
    "as SELECT … FROM t WITH (…)"
)


def documented(options: Mapping[str, str], known: Iterable[str], *, others: Iterable[str] = ()) -> dict[str, str]:
    """Return the options in the spelling of the documentation.

    :param options: the options from Spark.
    :param known: the known names.
    :param others: the names to ignore: an SQL view has the options of reading and writing.
    :raises ConfigError: an option is unknown, or comes from a path.
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
    """Return the names of the producer's own options."""
    return tuple(name for name in producer_options() if name not in ("http", "retry_policy"))


@dataclass(frozen=True, slots=True)
class Target:
    """A logstore and its credentials.

    :ivar project: the project, its endpoint and its credentials.
    :ivar logstore: the logstore.
    """

    project: ProjectConfig
    logstore: str

    def __str__(self) -> str:
        return f"{self.project.project}/{self.logstore} at {self.project.endpoint}"


def target_of(options: Mapping[str, str]) -> Target:
    """Return the logstore that the options name.

    :param options: the options in the spelling of the documentation.
    :raises ConfigError: an option is missing or invalid.
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


_KEY = "accessKeyId", "accessKeySecret"


def _provider_of(options: Mapping[str, str]) -> CredentialsProvider | str:
    given = [name for name in ("credentials", "credentialsProvider", *_KEY) if options.get(name)]
    if not given:
        return EnvironmentCredentials()
    first, *others = given
    if first not in _KEY:
        if others:
            raise ConfigError(first, f"must not be given together with {others[0]}", first)
        return options[first] if first == "credentials" else ImportedCredentials(options[first])
    if not others:
        missing = "accessKeySecret" if first == "accessKeyId" else "accessKeyId"
        raise ConfigError(missing, f"must be given together with {first}", missing)
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
    """A credentials provider by its import path, so that the pickled options contain no secret.

    :ivar path: ``package.module:name`` of a provider, or of a function without arguments that makes one.
    """

    path: str

    def __post_init__(self) -> None:
        module, colon, name = self.path.partition(":")
        if not (module and colon and name):
            rule = "must be package.module:name of a credentials provider, or of a function that makes one"
            raise ConfigError("credentialsProvider", rule, self.path)

    def get_credentials(self) -> Credentials:
        """Return the provider's credentials. The provider is imported once a process.

        :raises ConfigError: it cannot be imported, or is not a provider.
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


def lack_of_credentials(target: Target) -> ProducerError | None:
    """Return why this process has no credentials, which may be only the executors'; None if it has some."""
    provider = target.project.credentials
    if isinstance(provider, EnvironmentCredentials | str):
        try:
            provider_of(provider).get_credentials()
        except (ConfigError, CredentialsError) as error:
            return error
    return None


def producer_config(options: Mapping[str, str], **defaults: object) -> ProducerConfig:
    """Build the producer's configuration from its own options.

    :param options: the options in the spelling of the documentation; others are ignored.
    :param defaults: the values of options that are not given.
    :raises ConfigError: a value is invalid.
    """
    own = {name: options[name] for name in producer_option_names() if name in options}
    return ProducerConfig.from_mapping({**defaults, **own})
