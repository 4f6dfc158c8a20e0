"""What precedes a value, by the value's length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ..protobuf import delimited, varint
from .gather import Part
from .values import Numbers, binary_of

# Lengths up to these are kept, the second for frames; longer ones are made for each slice anew.
_MOST_KEPT = 4096
_MOST_FRAMES_KEPT = 16_384
_FIRST_KEPT = 256
# What precedes the values of a field with a longer name is not kept: what is kept is bounded in bytes, too.
_MAX_NAME_KEPT = 256


class Prefixes:
    """A table of byte strings by a length, which grows as it is used. Threads may fill in the same twice.

    :param make: the bytes for a length.
    :param most: lengths that are kept.
    """

    def __init__(self, make: Callable[[int], bytes], most: int) -> None:
        self._make = make
        self._most = most
        self._kept: tuple[pa.Array, Numbers] | None = None

    def part(self, lengths: Numbers, valid: Numbers | None = None) -> Part:
        """The strings for some lengths, one for each row.

        :param valid: which rows have one at all; None means all.
        """
        longest = int(lengths.max(initial=0))
        if longest >= self._most:
            distinct, index = np.unique(lengths, return_inverse=True)
            pool, sizes = self._table(distinct.tolist())
        else:
            index = lengths
            pool, sizes = self._up_to(longest)
        # The first is empty, and stands for null.
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
    """What precedes the values of one field: everything from its tag to the value's length."""
    start = delimited(0x0A, key) + b"\x12"

    def make(length: int) -> bytes:
        inner = start + varint(length)
        return b"\x12" + varint(len(inner) + length) + inner

    return Prefixes(make, _MOST_KEPT if len(key) <= _MAX_NAME_KEPT else 0)


def of_tag(tag: int) -> Prefixes:
    """A tag and the length of what follows."""
    return Prefixes(lambda length: bytes((tag,)) + varint(length), _MOST_FRAMES_KEPT)


#: A record's frame, and what precedes a field's key.
SHORT = of_tag(0x0A)
#: What precedes a field, and a field's value.
LONG = of_tag(0x12)
