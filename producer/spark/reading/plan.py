"""The plan of a read, made from its options, and pickled to the executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import StructType

from ...model.config import ProducerConfig
from ...model.errors import ConfigError, CredentialsError
from ...reading.search import command_of
from ...wire.cursors import MAX_PULL_COUNT
from ..logstore import LogstoreClient
from ..options import (
    READ_OPTIONS,
    TARGET_OPTIONS,
    WRITE_OPTIONS,
    Target,
    documented,
    lack_of_credentials,
    producer_config,
    producer_option_names,
    target_of,
    values_of,
)
from .filters import Condition
from .schema import check_schema

#: Options of the producer that also apply to reading.
SHARED_OPTIONS = tuple(
    name
    for name in producer_option_names()
    if name.startswith("http.")
    or name in {"sign_version", "region", "failover_ms", "retries", "base_retry_backoff_ms", "max_retry_backoff_ms"}
)

# The longest pause between attempts. It is shorter than a producer's, because a user or a task waits for the read.
_MAX_BACKOFF_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """The plan of a read.

    :ivar target: the logstore and its credentials.
    :ivar config: the configuration of requests and retries.
    :ivar schema: the columns.
    :ivar failfast: True if a value that does not match its column's type is an error.
    :ivar pull_count: the number of LogGroups in one request.
    :ivar shards: the shards to read; None for all.
    :ivar starting: ``startingOffsets``, or None.
    :ivar ending: ``endingOffsets``, or None.
    :ivar max_rows: ``maxRowsPerTrigger``, or None.
    :ivar max_seconds: ``maxSecondsPerTrigger``, or None.
    :ivar partitions: ``partitionsPerShard``, or None.
    :ivar push_filters: ``pushFilters``.
    :ivar received_within: ``receivedWithin``, seconds, or None.
    :ivar query: ``query``, or None.
    :ivar since: ``startingTime``, or None.
    :ivar until: ``endingTime``, or None.
    :ivar conditions: the pushed conditions; a row must meet all of them.
    """

    target: Target
    config: ProducerConfig
    schema: StructType
    failfast: bool = False
    pull_count: int = MAX_PULL_COUNT
    shards: tuple[str, ...] | None = None
    starting: str | None = None
    ending: str | None = None
    max_rows: int | None = None
    max_seconds: int | None = None
    partitions: int | None = None
    push_filters: bool = False
    received_within: int | None = None
    query: str | None = None
    since: str | None = None
    until: str | None = None
    conditions: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType) -> ReadPlan:
        """Make the plan from options.

        :param options: the options from Spark, in any case.
        :raises ConfigError: an option or the schema is invalid.
        """
        options = documented(
            options,
            [*TARGET_OPTIONS, *READ_OPTIONS, *SHARED_OPTIONS],
            others=[*WRITE_OPTIONS, *producer_option_names()],
        )
        check_schema(schema)
        _check_query(options)
        chosen = values_of(READ_OPTIONS, options)
        return cls(
            target=_readable(target_of(options)),
            config=producer_config({"max_retry_backoff_ms": str(_MAX_BACKOFF_MS), **options}),
            schema=schema,
            failfast=chosen["mode"] == "FAILFAST",
            pull_count=chosen["pullCount"],
            shards=_shards(chosen["shards"]),
            starting=chosen["startingOffsets"],
            ending=chosen["endingOffsets"],
            max_rows=chosen["maxRowsPerTrigger"],
            max_seconds=chosen["maxSecondsPerTrigger"],
            partitions=chosen["partitionsPerShard"],
            push_filters=chosen["pushFilters"],
            received_within=chosen["receivedWithin"],
            query=chosen["query"],
            since=chosen["startingTime"],
            until=chosen["endingTime"],
        )

    def client(self) -> LogstoreClient:
        """Make a client of the logstore."""
        return LogstoreClient(self.target, self.config)

    def shards_of(self, client: LogstoreClient) -> list[str]:
        """Return the logstore's shards to read.

        :raises ConfigError: a wanted shard does not exist.
        """
        existing = client.shards()
        if self.shards is None:
            return existing
        for shard in self.shards:
            if shard not in existing:
                raise ConfigError("shards", f"must be among the logstore's shards {', '.join(existing)}", shard)
        return [shard for shard in existing if shard in self.shards]


def _readable(target: Target) -> Target:
    """Return ``target`` if this process has credentials: the driver needs them to list shards."""
    lack = lack_of_credentials(target)
    if isinstance(lack, CredentialsError):
        raise ConfigError("credentials", f"must also give the driver a key: {lack.message}", "credentials") from lack
    if lack is not None:
        rule = "must be given, or LOGHUB_ACCESS_KEY_ID and LOGHUB_ACCESS_KEY_SECRET be set in the driver's environment"
        raise ConfigError("accessKeyId", rule, "accessKeyId")
    return target


# The options that are about shards.
_OF_SHARDS = ("startingOffsets", "endingOffsets", "shards", "partitionsPerShard", "pullCount", "receivedWithin",
              "maxRowsPerTrigger", "maxSecondsPerTrigger")  # fmt: skip


def _check_query(options: Mapping[str, str]) -> None:
    query = options.get("query")
    if query is None:
        for name in ("startingTime", "endingTime"):
            if name in options:
                rule = "needs query; without query use startingOffsets and endingOffsets, by the time of receipt"
                raise ConfigError(name, rule, options[name])
        return
    for name in _OF_SHARDS:
        if name in options:
            rule = "does not work with query, which ignores shards: use startingTime and endingTime, by the logs' time"
            raise ConfigError(name, rule, options[name])
    if command_of(query):
        raise ConfigError("query", "must be a search without SQL: use Spark's SQL", query)


def _shards(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    numbers = [part.strip() for part in text.split(",")]
    if not all(number.isascii() and number.isdigit() for number in numbers):
        raise ConfigError("shards", "must be numbers of shards, separated by commas", text)
    return tuple(str(int(number)) for number in numbers)
