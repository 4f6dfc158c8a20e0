"""A range of a shard, from one cursor to another, and reading it in an executor."""

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
from ..errors import said_in_the_first_line
from ..logstore import LogstoreClient, Pulled
from .arrow import Batches
from .filters import kept
from .plan import ReadPlan

# GetCursor takes 32 bits.
_MOST_SECONDS = (1 << 32) - 1


@dataclass(frozen=True)
class ShardRange(InputPartition):
    """What one task reads.

    :ivar shard: the shard.
    :ivar begin: the cursor of the first LogGroup.
    :ivar end: the cursor behind the last one.
    """

    shard: str
    begin: str
    end: str


def ranges_between(begin: dict[str, str], end: dict[str, str]) -> list[ShardRange]:
    """The ranges that hold anything, in order of their shards."""
    found = [ShardRange(shard, begin[shard], end[shard]) for shard in sorted(end, key=int)]
    return [each for each in found if not _is_empty(each)]


def divided(client: LogstoreClient, part: ShardRange, most: int) -> list[ShardRange]:
    """The range in parts, about as long in the time of receipt, which is all that cursors can be asked for by.

    :param most: how many; fewer where a part would hold nothing.
    :raises LogHubReadError: the server did not say.
    """
    if most == 1:
        return [part]
    first, last = (client.cursor_time(part.shard, cursor) for cursor in (part.begin, part.end))
    # Whole seconds: within one nothing can be asked for.
    times = sorted({first + (last - first) * number // most for number in range(1, most)} - {first})
    cuts = (client.cursor(part.shard, time) for time in times)
    # What was received in the second of the end, or since then, may lie behind the end.
    inner = sorted({cut for cut in cuts if _lies_in(cut, part)}, key=lambda cut: position_of(cut) or 0)
    edges = [part.begin, *inner, part.end]
    return [ShardRange(part.shard, begin, end) for begin, end in itertools.pairwise(edges)]


def received_between(
    client: LogstoreClient, part: ShardRange, first: int | None, last: int | None
) -> ShardRange | None:
    """The part of a range that was received between two Unix seconds, both included; None if there is nothing.

    :param first: None where the range begins; likewise ``last``.
    :raises LogHubReadError: the server did not say.
    """
    begin, end = part.begin, part.end
    if first is not None and first > 0:
        begin = _later(begin, client.cursor(part.shard, min(first, _MOST_SECONDS)))
    if last is not None and last < _MOST_SECONDS:
        end = _earlier(end, client.cursor(part.shard, max(1, last + 1)))
    narrowed = ShardRange(part.shard, begin, end)
    return None if _is_empty(narrowed) else narrowed


def _later(cursor: str, other: str) -> str:
    """``other`` if it lies behind, as far as cursors tell."""
    place, its = position_of(cursor), position_of(other)
    return other if place is not None and its is not None and its > place else cursor


def _earlier(cursor: str, other: str) -> str:
    place, its = position_of(cursor), position_of(other)
    return other if place is not None and its is not None and its < place else cursor


def _lies_in(cursor: str, part: ShardRange) -> bool:
    """Whether a cursor divides a range, as far as cursors tell."""
    begin, place, end = map(position_of, (part.begin, cursor, part.end))
    return begin is not None and place is not None and end is not None and begin < place < end


def _is_empty(part: ShardRange) -> bool:
    begin, end = position_of(part.begin), position_of(part.end)
    if begin is None or end is None:
        return part.begin == part.end
    return begin >= end


def read_range(plan: ReadPlan, part: ShardRange) -> Iterator[Any]:
    """The record batches of a range.

    :raises LogHubReadError: the server did not hand out all of it.
    :raises MalformedValueError: a value is not of its column's type, and ``mode`` is FAILFAST.
    """
    batches = Batches(plan.schema, part.shard, failfast=plan.failfast)
    with said_in_the_first_line():
        yield from _read_range(plan, part, batches)


def _read_range(plan: ReadPlan, part: ShardRange, batches: Batches) -> Iterator[Any]:
    with plan.client() as client, closing(_pulls(client, part, plan.pull_count)) as pulls:
        for pulled in pulls:
            for batch in batches.add(pulled.groups, pulled.cursors, len(pulled.body)):
                yield kept(batch, plan.conditions)
    for batch in batches.rest():
        yield kept(batch, plan.conditions)


def _pulls(client: LogstoreClient, part: ShardRange, count: int) -> Generator[Pulled]:
    """Every answer of the range, the next one being fetched while one is worked on."""
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
    position, end = position_of(reached), position_of(part.end)
    if position is not None and end is not None and position < end:
        raise LogHubReadError(
            f"shard {part.shard} of {client.target} gave nothing more at cursor {reached}, before {part.end}, where it "
            "ended when this read was planned: the logstore may have been made anew; read again"
        )
