"""How far a micro-batch goes, where it is not to take all that is there.

The protocol does not say how many logs lie between two cursors. So rows are counted by pulling them, and what the
driver has counted, the executors pull once more; seconds are known to the server and cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ...wire.cursors import position_of
from ..logstore import LogstoreClient, is_cursor
from .ranges import ShardRange


def advance_by_seconds(
    client: LogstoreClient, begin: dict[str, str], end: dict[str, str], seconds: int
) -> dict[str, str]:
    """``end``, but in each shard only what was received within ``seconds`` of the first LogGroup from ``begin`` on.

    At least that LogGroup is in it.
    """
    return {
        shard: cursor if cursor == begin[shard] else _within(client, shard, begin[shard], cursor, seconds)
        for shard, cursor in end.items()
    }


def _within(client: LogstoreClient, shard: str, begin: str, end: str, seconds: int) -> str:
    reached = client.cursor(shard, client.cursor_time(shard, begin) + seconds)
    here, there = position_of(reached), position_of(end)
    if here is not None and there is not None:
        return reached if here < there else end
    # Without an order of cursors, one time of receipt against the other.
    return reached if client.cursor_time(shard, reached) < client.cursor_time(shard, end) else end


def in_turn(ranges: Sequence[ShardRange], turn: int) -> list[ShardRange]:
    """The ranges, another one first at each turn: what is left over is not always the same shard's."""
    start = turn % max(1, len(ranges))
    return [*ranges[start:], *ranges[:start]]


def advance_by_rows(client: LogstoreClient, ranges: Sequence[ShardRange], rows: int, count: int) -> dict[str, str]:
    """How far about ``rows`` rows go in all, at whole LogGroups, and at least one LogGroup.

    The shards get equal shares, and what one has not is given to those after it. Shards without a share are left out.

    :param ranges: where there is anything, and how far it goes.
    :param count: LogGroups in one request.
    """
    reached, left = {}, rows
    for index, part in enumerate(ranges):
        if left > 0:
            reached[part.shard], taken = _advance(client, part, -(-left // (len(ranges) - index)), count)
            left -= taken
    return reached


def _advance(client: LogstoreClient, part: ShardRange, rows: int, count: int) -> tuple[str, int]:
    """The cursor behind the last LogGroup that fits into ``rows``, or behind the first one, and the rows before it."""
    cursor, taken = part.begin, 0
    while taken < rows:
        pulled = client.pull_columns(part.shard, cursor, count, part.end)
        sizes = pulled.groups.sizes
        fitting = max(_fitting(sizes, rows - taken), 0 if taken else 1)
        if fitting >= len(sizes):
            cursor, taken = pulled.next_cursor, taken + sum(sizes)
            if pulled.at_end:
                break
        elif fitting == 0:
            break
        elif is_cursor(pulled.cursors[fitting]):
            return pulled.cursors[fitting], taken + sum(sizes[:fitting])
        else:  # only the server can say which cursor is behind so many
            count = fitting
    return cursor, taken


def _fitting(sizes: Sequence[int], rows: int) -> int:
    """How many of the LogGroups, from the first one on, have no more than ``rows`` logs."""
    return sum(total <= rows for total in accumulate(sizes))
