"""Converts a block of lines to a column of text, and a column of text to the buffers of an Arrow string column.

``_arrow_text.pyx`` is the native implementation.
"""

from __future__ import annotations

import numpy as np

from .text_column import ABSENT, TextColumn


def line_column(block: bytes, rows: int) -> tuple[bytes, TextColumn]:
    r"""Split a block of whole lines; the last one may lack a line end, and then keeps its ``\r``.

    :param rows: the number of lines.
    :return: the start of each line in the block, 64-bit integers in native byte order, and the lines.
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
    column = TextColumn(sizes.astype(np.uint32).tobytes(), block.replace(b"\n", b""))
    return starts.astype(np.int64).tobytes(), column


def arrow_buffers(column: TextColumn) -> tuple[bytes | None, bytes]:
    """Return the validity bitmap and the offsets of an Arrow string column.

    The bitmap has a bit per row, from the lowest; it is None if all rows have a value. The offsets are the start of
    each value and the end of the last one, 32-bit integers in native byte order.
    """
    sizes = np.frombuffer(column.sizes, np.uint32)
    has = sizes != ABSENT
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(np.where(has, sizes, 0), out=offsets[1:])
    return None if has.all() else np.packbits(has, bitorder="little").tobytes(), offsets.tobytes()
