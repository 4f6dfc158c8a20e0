"""Joins the parts of records row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .values import MAX_OFFSET, Numbers, extent_of


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One byte string of every row.

    :ivar pool: a binary array of strings.
    :ivar index: the position in the pool for each row; one number if it is the same for all rows; None if positions
        equal rows. A null of the pool is an empty string.
    :ivar sizes: the length in each row, bytes; one number if it is the same for all rows.
    """

    pool: pa.Array
    index: Numbers | int | None
    sizes: Numbers | int


def total_sizes(parts: Sequence[Part], rows: int) -> Numbers:
    """Return the total length of each row, bytes."""
    total = np.zeros(rows, np.int64)
    for part in parts:
        total += part.sizes
    return total


def join(parts: Sequence[Part], rows: int, size: int) -> tuple[pa.Buffer, Numbers]:
    """Join the parts of the first row, then those of the second, and so on.

    :param size: the sum of :func:`total_sizes`, bytes.
    :returns: all bytes, which others may follow, and the end of each row in them.
    """
    if rows == 0:
        return pa.py_buffer(b""), np.zeros(0, np.int32)
    large = size > MAX_OFFSET or sum(extent_of(part.pool) for part in parts) > MAX_OFFSET
    kind = pa.large_binary() if large else pa.binary()
    pool = pa.concat_arrays([part.pool.cast(kind) for part in parts])
    taken = pc.take(pool, _positions(parts, rows, len(pool)), boundscheck=False)
    _, offsets, data = taken.buffers()
    ends = np.frombuffer(offsets, np.int64 if large else np.int32, len(taken) + 1)[len(parts) :: len(parts)]
    return data or pa.py_buffer(b""), ends


def pool_of(data: pa.Buffer, offsets: Numbers) -> pa.Array:
    """Return a binary array of adjacent slices of ``data``, with an empty one at the end for null."""
    large = offsets[-1] > MAX_OFFSET
    numbers = np.append(offsets, offsets[-1]).astype(np.int64 if large else np.int32)
    kind = pa.large_binary() if large else pa.binary()
    return pa.Array.from_buffers(kind, len(offsets), [None, pa.py_buffer(numbers), data])


def _positions(parts: Sequence[Part], rows: int, pool_size: int) -> pa.Array:
    """Return the position of each part of each row in the concatenated pools, row by row."""
    kind = np.int32 if pool_size <= MAX_OFFSET else np.int64
    # Writing each column as a line and transposing is twice as fast as writing every n-th number.
    lines = np.empty((len(parts), rows), kind)
    base = 0
    for line, part in zip(lines, parts, strict=True):
        np.add(np.arange(rows, dtype=kind) if part.index is None else part.index, base, out=line, casting="same_kind")
        base += len(part.pool)
    return pa.array(np.ascontiguousarray(lines.T).reshape(-1))
