"""Shards: ranges of a logstore's 128-bit key space, with splits and merges.

A new logstore has ``n`` shards of equal ranges. A split makes a shard readonly, and adds new shards of its range that
take further writes. A merge does the same with two neighbours and one new shard. Bounds are 32 hexadecimal digits, so
they compare as text. The last range's exclusive end is ``fff…f``, as in LogHub, although the key ``fff…f`` belongs to
it.
"""

from __future__ import annotations

import itertools
import sqlite3
from dataclasses import dataclass

from ...text.plural import counted
from ..errors import ApiError

MAX_SHARDS = 256
_SPACE = 1 << 128
_COLUMNS = "shard, begin_key, end_key, status, created, next"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One shard.

    :ivar number: its number in its logstore.
    :ivar begin: the first key of its range.
    :ivar end: the first key after its range.
    :ivar is_writable: True if it takes writes, False after a split or merge.
    :ivar created: time of creation, Unix seconds.
    :ivar next: position of its next LogGroup.
    """

    number: int
    begin: str
    end: str
    is_writable: bool
    created: float
    next: int


def bound_between(number: int, count: int) -> str:
    """Return the first key of shard ``number`` of ``count`` equal shards, which is the end of the one before it."""
    return f"{min(_SPACE * number // count, _SPACE - 1):032x}"


def make_shards(connection: sqlite3.Connection, logstore: int, count: int, now: float) -> None:
    """Create ``count`` shards for a new logstore."""
    for number in range(count):
        _insert(connection, logstore, number, (bound_between(number, count), bound_between(number + 1, count)), now)


def shards_of(connection: sqlite3.Connection, logstore: int) -> list[Shard]:
    """Return all shards of a logstore, by number."""
    query = f"SELECT {_COLUMNS} FROM shards WHERE logstore = ? ORDER BY shard"
    return [_shard(row) for row in connection.execute(query, (logstore,))]


def find_shard(connection: sqlite3.Connection, logstore: int, number: int) -> Shard:
    """Return the shard.

    :raises ApiError: ``ShardNotExist``.
    """
    query = f"SELECT {_COLUMNS} FROM shards WHERE logstore = ? AND shard = ?"
    row = connection.execute(query, (logstore, number)).fetchone()
    if row is None:
        raise ApiError("ShardNotExist", f"the logstore has no shard {number}: ListShards lists its shards")
    return _shard(row)


def shard_in_turn(connection: sqlite3.Connection, logstore: int, turn: int) -> int:
    """Return the number of a writable shard, by turn."""
    query = "SELECT shard FROM shards WHERE logstore = ? AND status = 'readwrite' ORDER BY shard LIMIT 1 OFFSET ?"
    return int(connection.execute(query, (logstore, turn)).fetchone()[0])


def shard_of_key(connection: sqlite3.Connection, logstore: int, key: int) -> int:
    """Return the number of the writable shard of ``key``."""
    query = (
        "SELECT shard FROM shards WHERE logstore = ? AND status = 'readwrite' AND begin_key <= ?"
        " ORDER BY begin_key DESC LIMIT 1"
    )
    return int(connection.execute(query, (logstore, f"{key:032x}")).fetchone()[0])


def split_shard(
    connection: sqlite3.Connection, logstore: int, number: int, where: str | int, now: float
) -> list[Shard]:
    """Split a shard at a key, or into ``where`` equal parts; return it and the new shards.

    :raises ApiError: ``ParameterInvalid``, it is readonly, the key is outside its range, or there would be too many
        shards.
    """
    shard = _writable(connection, logstore, number)
    bounds = [shard.begin, *_cuts(shard, where), shard.end]
    writable = _count(connection, logstore)
    if writable + len(bounds) - 2 > MAX_SHARDS:
        raise ApiError(
            "ParameterInvalid",
            f"the logstore has {counted(writable, 'writable shard')}: {len(bounds) - 2} more would exceed the limit of"
            f" {MAX_SHARDS}",
        )
    _close(connection, logstore, shard)
    parts = itertools.pairwise(bounds)
    made = [_insert(connection, logstore, _free_number(connection, logstore), part, now) for part in parts]
    return [find_shard(connection, logstore, one) for one in (number, *made)]


def _cuts(shard: Shard, where: str | int) -> list[str]:
    """Return the keys that divide a shard."""
    begin, end = int(shard.begin, 16), int(shard.end, 16)
    cuts = (
        [parse_key(where)]
        if isinstance(where, str)
        else [begin + (end - begin) * part // where for part in range(1, where)]
    )
    bounds = [begin, *cuts, end]
    if any(low >= high for low, high in itertools.pairwise(bounds)):
        wanted = f"key {cuts[0]:032x} is not" if isinstance(where, str) else f"there are no {where} parts"
        raise ApiError("ParameterInvalid", f"{wanted} between {shard.begin} and {shard.end}, the shard's bounds")
    return [f"{cut:032x}" for cut in cuts]


def merge_shard(connection: sqlite3.Connection, logstore: int, number: int, now: float) -> list[Shard]:
    """Merge a shard with the next one; return the new shard, and the two.

    :raises ApiError: ``ParameterInvalid``, it is readonly, or is the last one.
    """
    shard = _writable(connection, logstore, number)
    query = "SELECT shard FROM shards WHERE logstore = ? AND status = 'readwrite' AND begin_key = ?"
    row = connection.execute(query, (logstore, shard.end)).fetchone()
    if row is None:
        raise ApiError("ParameterInvalid", f"shard {number} has the last range: merge the shard before it")
    following = find_shard(connection, logstore, row[0])
    _close(connection, logstore, shard)
    _close(connection, logstore, following)
    made = _insert(connection, logstore, _free_number(connection, logstore), (shard.begin, following.end), now)
    return [find_shard(connection, logstore, one) for one in (made, number, following.number)]


def parse_key(key: str) -> int:
    """Return the place of ``key`` in the key space.

    :param key: 32 hexadecimal digits; a shorter key is a prefix, filled with zeros.
    :raises ApiError: ``ParameterInvalid``, the key is not hexadecimal or too long.
    """
    if not 1 <= len(key) <= 32 or not all(digit in "0123456789abcdefABCDEF" for digit in key):
        raise ApiError("ParameterInvalid", f"key {key[:64]!r} is not a hash key: 1 to 32 hexadecimal digits")
    return int(key.ljust(32, "0"), 16)


def _shard(row: tuple[int, str, str, str, float, int]) -> Shard:
    number, begin, end, status, created, following = row
    return Shard(
        number=number, begin=begin, end=end, is_writable=status == "readwrite", created=created, next=following
    )


def _writable(connection: sqlite3.Connection, logstore: int, number: int) -> Shard:
    shard = find_shard(connection, logstore, number)
    if not shard.is_writable:
        raise ApiError("ParameterInvalid", f"shard {number} is readonly after a split or merge: use a writable shard")
    return shard


def _free_number(connection: sqlite3.Connection, logstore: int) -> int:
    query = "SELECT MAX(shard) + 1 FROM shards WHERE logstore = ?"
    return int(connection.execute(query, (logstore,)).fetchone()[0])


def _count(connection: sqlite3.Connection, logstore: int) -> int:
    return int(connection.execute("SELECT shard_count FROM logstores WHERE id = ?", (logstore,)).fetchone()[0])


def _close(connection: sqlite3.Connection, logstore: int, shard: Shard) -> None:
    connection.execute(
        "UPDATE shards SET status = 'readonly' WHERE logstore = ? AND shard = ?", (logstore, shard.number)
    )
    connection.execute("UPDATE logstores SET shard_count = shard_count - 1 WHERE id = ?", (logstore,))


def _insert(connection: sqlite3.Connection, logstore: int, number: int, keys: tuple[str, str], now: float) -> int:
    connection.execute(
        "INSERT INTO shards (logstore, shard, next, begin_key, end_key, status, created)"
        " VALUES (?, ?, 0, ?, ?, 'readwrite', ?)",
        (logstore, number, *keys, now),
    )
    connection.execute("UPDATE logstores SET shard_count = shard_count + 1 WHERE id = ?", (logstore,))
    return number
