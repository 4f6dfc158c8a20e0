"""How a logstore's 128-bit key space is divided into shards.

``n`` shards get equal ranges; bounds are 32 hexadecimal digits. The last range's exclusive end is written ``fff…f``,
as LogHub does, although the key ``fff…f`` belongs to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ApiError

_SPACE = 1 << 128


@dataclass(frozen=True, slots=True)
class ShardRange:
    """One shard: its number and the keys that it takes, ``begin`` included, ``end`` excluded."""

    shard: int
    begin: str
    end: str


def shard_ranges(count: int) -> list[ShardRange]:
    """The ranges of ``count`` shards, in order."""
    bounds = [_SPACE * number // count for number in range(count)] + [_SPACE - 1]
    return [ShardRange(shard, f"{bounds[shard]:032x}", f"{bounds[shard + 1]:032x}") for shard in range(count)]


def parse_key(key: str) -> int:
    """The place in the key space that ``key`` names.

    :param key: 32 hexadecimal digits; fewer are filled up with zeros on the right, as a prefix of the space.
    :raises ApiError: ``ParameterInvalid``, the key is not hexadecimal or too long.
    """
    if not 1 <= len(key) <= 32 or not all(digit in "0123456789abcdefABCDEF" for digit in key):
        raise ApiError("ParameterInvalid", f"key {key[:64]!r} is not a hash key: 1 to 32 hexadecimal digits")
    return int(key.ljust(32, "0"), 16)


def shard_of_key(key: int, count: int) -> int:
    """The one of ``count`` shards whose range holds ``key``."""
    # The inverse of bounds[i] = space * i // count, without walking through them.
    return ((key + 1) * count - 1) // _SPACE
