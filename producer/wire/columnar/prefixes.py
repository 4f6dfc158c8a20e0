"""Makes the bytes before a value, by the length of the value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ..protobuf import delimited, varint
from .gather import Part
from .values import Numbers, binary_of

# Maximum lengths that are cached, the second for frames; prefixes of longer values are made for each slice.
_MOST_KEPT = 4096
_MOST_FRAMES_KEPT = 16_384
_FIRST_KEPT = 256
# Maximum name length of fields with a cache, so that its size in bytes is bounded, too.
_MAX_NAME_KEPT = 256


class Prefixes:
    """A table of byte strings by length, filled on demand; two threads may both fill it.

    :param make: returns the bytes for a length.
    :param most: the length from which nothing is cached.
    """

    def __init__(self, make: Callable[[int], bytes], most: int) -> None:
        self._make = make
        self._most = most
        self._kept: tuple[pa.Array, Numbers] | None = None

    def part(self, lengths: Numbers, valid: Numbers | None = None) -> Part:
        """Return the strings for the lengths of all rows.

        :param valid: a mask of the rows that have one; None if all have.
        """
        longest = int(lengths.max(initial=0))
        if longest >= self._most:
            distinct, index = np.unique(lengths, return_inverse=True)
            pool, sizes = self._table(distinct.tolist())
        else:
            index = lengths
            pool, sizes = self._up_to(longest)
        # The first entry is empty, for null.
        index = index + 1 if valid is None else np.where(valid, index + 1, 0)
        return Part(pool, index, sizes[index])

    def _up_to(self, longest: int) -> tuple[pa.Array, Numbers]:
        kept = self._kept
        if kept is None or longest + 2 > len(kept[0]):
            count = max(_FIRST_KEPT, 1 << (longest + 1).bit_length())
            self._kept = kept = self._table(range(count))
        return kept[0].slice(0, longest + 2), kept[1]

    def _table(self, lengths: list[int] | range) -> tuple[pa.Array, Numbers]:
        texts = [b"", *map(self._make, lengths)]
        return binary_of(texts), np.array([len(text) for text in texts])


def of_key(key: bytes) -> Prefixes:
    """Return the prefixes of one field: the bytes from its tag to the length of the value."""
    start = delimited(0x0A, key) + b"\x12"

    def make(length: int) -> bytes:
        inner = start + varint(length)
        return b"\x12" + varint(len(inner) + length) + inner

    return Prefixes(make, _MOST_KEPT if len(key) <= _MAX_NAME_KEPT else 0)


def of_tag(tag: int) -> Prefixes:
    """Return the prefixes of a tag: the tag and the length."""
    return Prefixes(lambda length: bytes((tag,)) + varint(length), _MOST_FRAMES_KEPT)


#: Prefixes of a record, and of the key of a field.
SHORT = of_tag(0x0A)
#: Prefixes of a field, and of the value of a field.
LONG = of_tag(0x12)
