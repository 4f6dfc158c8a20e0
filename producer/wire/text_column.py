"""A column of text as the three buffers of an Arrow string column, for code that has no Arrow."""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import NamedTuple


class TextColumn(NamedTuple):
    """A column of text.

    :ivar validity: a bit a row, from the lowest: whether there is a value.
    :ivar offsets: where each value begins, and the last one ends, 32-bit numbers in the machine's order.
    :ivar data: the values, one behind the other.
    """

    validity: bytes
    offsets: bytes
    data: bytes

    @property
    def empty(self) -> bool:
        """Whether there is no value at all."""
        return not any(self.validity)

    def texts(self) -> list[str | None]:
        """The values, one by one; None where there is none."""
        bounds = array("i", self.offsets)
        if self.data.isascii():
            text = self.data.decode()
            values = [text[start:end] for start, end in pairwise(bounds)]
        else:
            values = [self.data[start:end].decode(errors="surrogateescape") for start, end in pairwise(bounds)]
        has = f"{int.from_bytes(self.validity, 'little'):0{len(values)}b}"[::-1]
        return [value if there == "1" else None for value, there in zip(values, has, strict=False)]
