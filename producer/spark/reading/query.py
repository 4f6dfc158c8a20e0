"""Read the logs that match a query in LogHub's language, for ``spark.read.format("loghub")`` with the option ``query``.

The read covers a range of the logs' own time. The driver queries the number of matching logs in each part of the range,
and makes partitions of about equal size. A task divides its range further, until no part has more logs than LogHub
pages well. Answers are encoded as LogGroups before they become columns, so that columns mean the same as without
``query``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ...model.errors import ConfigError
from ...model.records import LogItem
from ...reading.errors import LogHubReadError
from ...reading.search import PAGE, LogstoreSearch, Search
from ...text.plural import counted
from ...wire.log_group import encode_log, encode_tail
from ...wire.protobuf import delimited
from ...wire.read_columns import read_groups
from ...wire.read_log_group import Fields
from ..errors import hidden_traceback
from .arrow import Batches
from .filters import kept, times_of
from .offsets import seconds_of
from .plan import ReadPlan
from .schema import CURSOR

#: The approximate number of logs of a partition, and the limit of logs of a part that is read in pages.
PARTITION_LOGS = 10_000

_TAG = "__tag__:"
_RESERVED = ("__time__", "__time_ns_part__", "__topic__", "__source__")


@dataclass(frozen=True)
class QueryRange(InputPartition):
    """The range of time that one task reads.

    :ivar begin: the first Unix second.
    :ivar end: the Unix second after the last one.
    """

    begin: int
    end: int


class QueryReader(DataSourceReader):
    """A reader of the logs that match a query.

    :param plan: the plan of the read, with a query.
    :raises ConfigError: an option does not work with a query, or ``startingTime`` is missing.
    """

    def __init__(self, plan: ReadPlan) -> None:
        if plan.query is None or plan.since is None:
            rule = "must be given with query: Unix seconds or a time such as 2026-01-31T12:00:00Z, of the first logs"
            raise ConfigError("startingTime", rule, plan.since)
        if CURSOR in plan.schema.names:
            raise ConfigError("schema", f"must not have the column {CURSOR}, which a query does not return", CURSOR)
        self._plan = plan
        self._begin = seconds_of("startingTime", plan.since)
        self._end = int(time.time()) + 1 if plan.until is None else seconds_of("endingTime", plan.until)
        if self._begin >= self._end:
            raise ConfigError("startingTime", "must be before endingTime", plan.since)

    @hidden_traceback()
    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges of time to read. The driver calls it once."""
        first, last = times_of(self._plan.conditions)
        begin = self._begin if first is None else max(self._begin, first)
        end = self._end if last is None else min(self._end, last + 1)
        if begin >= end:
            return []
        with self._plan.client() as client:
            return list(_partitions(client.searching, Search(begin, end, self._plan.query or "*")))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of one range. An executor calls it."""
        # Spark adds an empty partition if there is none.
        if isinstance(partition, QueryRange):
            with hidden_traceback():
                yield from self._read(Search(partition.begin, partition.end, self._plan.query or "*"))

    def _read(self, wanted: Search) -> Iterator[Any]:
        plan = self._plan
        batches = Batches(plan.schema, "", failfast=plan.failfast, where="GetLogs")
        with plan.client() as client:
            for place, logs in _pages(client.searching, wanted):
                body = _as_log_groups(logs)
                groups = read_groups(body)
                for batch in batches.add(groups, [place] * len(groups.sizes), len(body)):
                    yield kept(batch, plan.conditions)
        for batch in batches.rest():
            yield kept(batch, plan.conditions)


def _partitions(searching: LogstoreSearch, wanted: Search) -> Iterator[QueryRange]:
    """Yield consecutive ranges with about the same number of logs."""
    begin, found = None, 0
    for part in searching.histogram(wanted):
        if not part["count"]:
            continue
        if begin is None:
            begin = int(part["from"])
        end, found = int(part["to"]), found + int(part["count"])
        if found >= PARTITION_LOGS:
            yield QueryRange(begin, end)
            begin, found = None, 0
    if begin is not None:
        yield QueryRange(begin, end)


def _pages(searching: LogstoreSearch, wanted: Search) -> Iterator[tuple[str, list[Fields]]]:
    """Yield pages with every log of a range, each with its place for messages."""
    for part in searching.histogram(wanted):
        count, begin, end = int(part["count"]), int(part["from"]), int(part["to"])
        narrower = replace(wanted, begin=begin, end=end)
        if count > PARTITION_LOGS and end - begin > 1 and (begin, end) != (wanted.begin, wanted.end):
            yield from _pages(searching, narrower)
        elif count:
            yield from _pages_of(searching, narrower, count)


def _pages_of(searching: LogstoreSearch, wanted: Search, count: int) -> Iterator[tuple[str, list[Fields]]]:
    """Yield pages with the ``count`` logs of a range.

    :raises LogHubReadError: there are fewer logs.
    """
    offset = 0
    while offset < count:
        logs = searching.logs(wanted, offset=offset, line=min(PAGE, count - offset))
        if not logs:
            raise LogHubReadError(
                f"GetLogs from {wanted.begin} to {wanted.end} returned {counted(offset, 'log')} of the {count} that "
                "GetHistograms counted: logs were deleted meanwhile, or the index is not complete yet; read again"
            )
        yield f"from {wanted.begin} to {wanted.end}, offset {offset}", logs
        offset += len(logs)


def _as_log_groups(logs: Sequence[Fields]) -> bytes:
    """Encode logs as in an answer of PullLogs."""
    groups = (_log_group(head, of_head) for head, of_head in groupby(logs, _head_of))
    return b"".join(delimited(0x0A, group) for group in groups)


_Head = tuple[str, str, tuple[tuple[str, str], ...]]


def _head_of(log: Mapping[str, Any]) -> _Head:
    """Return topic, source and tags."""
    tags = tuple((name[len(_TAG) :], str(value)) for name, value in log.items() if name.startswith(_TAG))
    return str(log.get("__topic__", "")), str(log.get("__source__", "")), tags


def _log_group(head: _Head, logs: Iterator[Mapping[str, Any]]) -> bytes:
    return b"".join(map(_record, logs)) + encode_tail(*head)


def _record(log: Mapping[str, Any]) -> bytes:
    own = [(name, value) for name, value in log.items() if name not in _RESERVED and not name.startswith(_TAG)]
    nanos = int(log.get("__time_ns_part__") or 0)
    return encode_log(LogItem(own, time=int(log["__time__"]), time_ns=nanos), 0)
