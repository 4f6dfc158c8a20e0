"""A column of text as the three buffers of an Arrow string column, for code that has no Arrow."""

from __future__ import annotations

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
