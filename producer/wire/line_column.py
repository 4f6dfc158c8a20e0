"""The lines of a block as a column of text, without their ends, and where each begins.

``_line_column.pyx`` is the compiled twin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class LineColumn(NamedTuple):
    """Lines one behind the other.

    :ivar starts: where each begins in the block, 64-bit numbers in the machine's order.
    :ivar offsets: where each begins in the text, and the last one ends, 32-bit ones.
    :ivar text: the lines without their ends.
    """

    starts: bytes
    offsets: bytes
    text: bytes


def line_column(block: bytes, rows: int) -> LineColumn:
    r"""Divide a block of whole lines; the last one may be without an end, and then keeps its ``\r``.

    :param rows: how many they are.
    """
    codes = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    if len(ends) < rows:
        ends = np.append(ends, len(block))
    starts = np.concatenate([[0], ends[:-1] + 1])
    sizes = ends - starts
    if b"\r" in block:
        ended = ends[:-1] if not block.endswith(b"\n") else ends
        sizes[: len(ended)] -= (codes[ended - 1] == ord("\r")) & (sizes[: len(ended)] > 0)
        block = block.replace(b"\r\n", b"\n")
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return LineColumn(starts.astype(np.int64).tobytes(), offsets.tobytes(), block.replace(b"\n", b""))
