"""What a read is to do, from its options; it travels to the executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import StructType

from ...model.config import ProducerConfig
from ...model.errors import ConfigError
from ...reading.logstore import MAX_PULL_COUNT
from ...reading.search import command_of
from ..logstore import LogstoreClient
from ..options import (
    READ_OPTIONS,
    TARGET_OPTIONS,
    WRITE_OPTIONS,
    Target,
    documented,
    knows_credentials,
    producer_config,
    producer_option_names,
    target_of,
)
from .filters import Condition
from .schema import check_schema

#: Options of the producer that reading has, too.
SHARED_OPTIONS = tuple(
    name
    for name in producer_option_names()
    if name.startswith("http.")
    or name in {"sign_version", "region", "retries", "base_retry_backoff_ms", "max_retry_backoff_ms"}
)

#: Of a shard: each is a look-up when the read is planned.
MAX_PARTITIONS = 1_000

#: Between the time of a log and that of its receipt: a hundred years.
MAX_SECONDS = 100 * 366 * 86_400

# A driver that plans, or a task, waits less long than a producer, which has nothing to lose.
_MAX_BACKOFF_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """What a read is to do.

    :ivar target: the logstore, and who signs.
    :ivar config: how requests travel and are retried.
    :ivar schema: the columns.
    :ivar failfast: whether a value that is not of its column's type is an error.
    :ivar pull_count: LogGroups in one request.
    :ivar shards: only these; None for all.
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
    :ivar conditions: which rows are asked for, as far as a reader can tell; all of them are to hold.
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
        """The plan that options ask for.

        :param options: as Spark hands them over, in any spelling of upper and lower case.
        :raises ConfigError: an option or the schema is wrong.
        """
        options = documented(
            options,
            [*TARGET_OPTIONS, *READ_OPTIONS, *SHARED_OPTIONS],
            others=[*WRITE_OPTIONS, *producer_option_names()],
        )
        check_schema(schema)
        _check_query(options)
        return cls(
            target=_readable(target_of(options)),
            config=producer_config({"max_retry_backoff_ms": str(_MAX_BACKOFF_MS), **options}),
            schema=schema,
            failfast=_is_failfast(options.get("mode", "PERMISSIVE")),
            pull_count=_whole_number(options, "pullCount", MAX_PULL_COUNT) or MAX_PULL_COUNT,
            shards=_shards(options.get("shards")),
            starting=options.get("startingOffsets"),
            ending=options.get("endingOffsets"),
            max_rows=_whole_number(options, "maxRowsPerTrigger"),
            max_seconds=_whole_number(options, "maxSecondsPerTrigger"),
            partitions=_whole_number(options, "partitionsPerShard", MAX_PARTITIONS),
            push_filters=_is_true(options, "pushFilters"),
            received_within=_whole_number(options, "receivedWithin", MAX_SECONDS),
            query=options.get("query"),
            since=options.get("startingTime"),
            until=options.get("endingTime"),
        )

    def client(self) -> LogstoreClient:
        """A client of the logstore."""
        return LogstoreClient(self.target, self.config)

    def shards_of(self, client: LogstoreClient) -> list[str]:
        """The shards to read, of those that the logstore has.

        :raises ConfigError: one that was asked for is not there.
        """
        there = client.shards()
        if self.shards is None:
            return there
        for shard in self.shards:
            if shard not in there:
                raise ConfigError("shards", f"must be of the shards of the logstore, {', '.join(there)}", shard)
        return [shard for shard in there if shard in self.shards]


def _readable(target: Target) -> Target:
    """``target``, if this process can sign: the driver has to ask which shards there are."""
    if not knows_credentials(target):
        rule = (
            "must be given, or LOGHUB_ACCESS_KEY_ID and LOGHUB_ACCESS_KEY_SECRET be set where the driver runs as well"
        )
        raise ConfigError("accessKeyId", rule, "accessKeyId")
    return target


# What says where in shards to read.
_OF_SHARDS = ("startingOffsets", "endingOffsets", "shards", "partitionsPerShard", "pullCount", "receivedWithin",
              "maxRowsPerTrigger", "maxSecondsPerTrigger")  # fmt: skip


def _check_query(options: Mapping[str, str]) -> None:
    query = options.get("query")
    if query is None:
        for name in ("startingTime", "endingTime"):
            if name in options:
                rule = "is for query; without one there are startingOffsets and endingOffsets, by the time of receipt"
                raise ConfigError(name, rule, options[name])
        return
    for name in _OF_SHARDS:
        if name in options:
            rule = "is not for query, which knows no shards: use startingTime and endingTime, of the logs' own time"
            raise ConfigError(name, rule, options[name])
    if command_of(query):
        raise ConfigError("query", "must be a search without SQL: that is Spark's here", query)


def _is_failfast(mode: str) -> bool:
    if mode.strip().upper() not in {"PERMISSIVE", "FAILFAST"}:
        raise ConfigError("mode", "must be PERMISSIVE or FAILFAST", mode)
    return mode.strip().upper() == "FAILFAST"


def _is_true(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").strip().lower()
    if text not in {"true", "false"}:
        raise ConfigError(name, "must be true or false", options[name])
    return text == "true"


def _whole_number(options: Mapping[str, str], name: str, most: int | None = None) -> int | None:
    if name not in options:
        return None
    text = options[name].strip()
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
    if number < 1 or (most is not None and number > most):
        rule = f"must be a whole number from 1 to {most}" if most else "must be a whole number, at least 1"
        raise ConfigError(name, rule, options[name])
    return number


def _shards(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    numbers = [part.strip() for part in text.split(",")]
    if not all(number.isascii() and number.isdigit() for number in numbers):
        raise ConfigError("shards", "must be numbers of shards, separated by commas", text)
    return tuple(str(int(number)) for number in numbers)
