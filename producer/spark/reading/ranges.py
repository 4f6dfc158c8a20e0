"""A range of a shard between two cursors, and reading it in an executor."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition

from ...reading.errors import LogHubReadError
from ...wire.cursors import position_of
from ..errors import hidden_traceback
from ..logstore import LogstoreClient, Pulled
from .arrow import Batches
from .filters import kept
from .plan import ReadPlan

# GetCursor accepts 32 bits.
_MOST_SECONDS = (1 << 32) - 1


@dataclass(frozen=True)
class ShardRange(InputPartition):
    """The range of a shard that one task reads.

    :ivar shard: the shard.
    :ivar begin: the cursor of the first LogGroup.
    :ivar end: the cursor after the last LogGroup.
    """

    shard: str
    begin: str
    end: str


def ranges_between(begin: dict[str, str], end: dict[str, str]) -> list[ShardRange]:
    """Return the ranges that are not empty, in the order of shards."""
    found = [ShardRange(shard, begin[shard], end[shard]) for shard in sorted(end, key=int)]
    return [each for each in found if not _is_empty(each)]


def divided(client: LogstoreClient, part: ShardRange, most: int) -> list[ShardRange]:
    """Divide a range into parts of about equal time of receipt, the only key by which the server finds cursors.

    :param most: the number of parts; empty parts are left out.
    :raises LogHubReadError: the server did not return a cursor.
    """
    if most == 1:
        return [part]
    first, last = (client.cursor_time(part.shard, cursor) for cursor in (part.begin, part.end))
    # Cursors are found by whole seconds.
    times = sorted({first + (last - first) * number // most for number in range(1, most)} - {first})
    cuts = (client.cursor(part.shard, time) for time in times)
    # A cursor for the second of the end, or a later one, may be after the end.
    inner = {cut for cut in cuts if _precedes(part.begin, cut) and _precedes(cut, part.end)}
    edges = [part.begin, *sorted(inner, key=lambda cut: position_of(cut) or 0), part.end]
    return [ShardRange(part.shard, begin, end) for begin, end in itertools.pairwise(edges)]


def received_between(
    client: LogstoreClient, part: ShardRange, first: int | None, last: int | None
) -> ShardRange | None:
    """Return the part of a range that was received between two Unix seconds; None if it is empty.

    :param first: the first second; None for the begin of the range.
    :param last: the last second, inclusive; None for the end of the range.
    :raises LogHubReadError: the server did not return a cursor.
    """
    begin, end = part.begin, part.end
    if first is not None and first > 0:
        found = client.cursor(part.shard, min(first, _MOST_SECONDS))
        begin = found if _precedes(begin, found) else begin
    if last is not None and last < _MOST_SECONDS:
        found = client.cursor(part.shard, max(1, last + 1))
        end = found if _precedes(found, end) else end
    narrowed = ShardRange(part.shard, begin, end)
    return None if _is_empty(narrowed) else narrowed


def _precedes(cursor: str, other: str) -> bool:
    """Return True if a cursor is known to be before another."""
    place, its = position_of(cursor), position_of(other)
    return place is not None and its is not None and place < its


def _is_empty(part: ShardRange) -> bool:
    begin, end = position_of(part.begin), position_of(part.end)
    if begin is None or end is None:
        return part.begin == part.end
    return begin >= end


def read_range(plan: ReadPlan, part: ShardRange) -> Iterator[Any]:
    """Yield the record batches of a range.

    :raises LogHubReadError: the server did not return all LogGroups.
    :raises MalformedValueError: a value does not match its column's type, and ``mode`` is FAILFAST.
    """
    batches = Batches(plan.schema, part.shard, failfast=plan.failfast)
    with hidden_traceback():
        yield from _read_range(plan, part, batches)


def _read_range(plan: ReadPlan, part: ShardRange, batches: Batches) -> Iterator[Any]:
    with plan.client() as client, closing(_pulls(client, part, plan.pull_count)) as pulls:
        for pulled in pulls:
            for batch in batches.add(pulled.groups, pulled.cursors, len(pulled.body)):
                yield kept(batch, plan.conditions)
    for batch in batches.rest():
        yield kept(batch, plan.conditions)


def _pulls(client: LogstoreClient, part: ShardRange, count: int) -> Generator[Pulled]:
    """Yield every answer of the range, and fetch the next one meanwhile."""
    with ThreadPoolExecutor(1, "loghub-reader") as ahead:
        cursor, going_on = part.begin, True
        coming = ahead.submit(client.pull_columns, part.shard, cursor, count, part.end)
        while going_on:
            pulled = coming.result()
            going_on = not pulled.at_end
            if going_on:
                coming = ahead.submit(client.pull_columns, part.shard, pulled.next_cursor, count, part.end)
            yield pulled
    _check_complete(client, part, pulled.next_cursor)


def _check_complete(client: LogstoreClient, part: ShardRange, reached: str) -> None:
    if _precedes(reached, part.end):
        raise LogHubReadError(
            f"shard {part.shard} of {client.target} ends at cursor {reached}, before its end {part.end} when the read "
            "was planned: the logstore may have been created again; read again"
        )
