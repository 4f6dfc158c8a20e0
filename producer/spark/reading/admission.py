"""Choose the end of a micro-batch that has a limit of rows or seconds.

The protocol does not tell the number of logs between two cursors. So the driver counts rows by pulling them, and the
executors pull them again. A limit in seconds costs nothing, because the server finds cursors by time.
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
    """Return the end of each shard, limited to ``seconds`` after the receipt of the first LogGroup from ``begin``.

    The range contains at least that LogGroup.
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
    # The cursors have no known order: compare their times of receipt.
    return reached if client.cursor_time(shard, reached) < client.cursor_time(shard, end) else end


def rotated(ranges: Sequence[ShardRange], turn: int) -> list[ShardRange]:
    """Return the ranges, rotated by ``turn``, so that no shard is always the last one."""
    start = turn % max(1, len(ranges))
    return [*ranges[start:], *ranges[:start]]


def advance_by_rows(client: LogstoreClient, ranges: Sequence[ShardRange], rows: int, count: int) -> dict[str, str]:
    """Return the end of each shard for about ``rows`` rows in whole LogGroups, and at least one LogGroup.

    The shards get equal shares. The unused share of a shard goes to the shards after it. Shards without a share are
    left out.

    :param ranges: the ranges that are not empty.
    :param count: the number of LogGroups in one request.
    """
    reached, left = {}, rows
    for index, part in enumerate(ranges):
        if left > 0:
            reached[part.shard], taken = _advance(client, part, -(-left // (len(ranges) - index)), count)
            left -= taken
    return reached


def _advance(client: LogstoreClient, part: ShardRange, rows: int, count: int) -> tuple[str, int]:
    """Return the cursor after the LogGroups that fit into ``rows``, at least one, and their number of rows."""
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
        else:  # pull only these: the server returns the cursor after them
            count = fitting
    return cursor, taken


def _fitting(sizes: Sequence[int], rows: int) -> int:
    """Return how many LogGroups from the first one on have at most ``rows`` logs together."""
    return sum(total <= rows for total in accumulate(sizes))
