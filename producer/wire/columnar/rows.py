"""Encodes rows whose values are texts, natively or purely (:mod:`producer.runtime.compiled` selects one).

The pure implementation looks up the prefix of each text in tables, and Arrow's ``take`` copies all parts of all rows.
The native one (``_columns.pyx``) reads Arrow's buffers. It first measures the records, and writes those of a piece into
the memory of the piece, so each byte is copied once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...runtime.compiled import compiled
from .fields import Entries, Field
from .gather import join, pool_of, total_sizes
from .prefixes import SHORT
from .time_fields import Times
from .values import Numbers

if TYPE_CHECKING:
    from .._columns import Columns


@dataclass(frozen=True, slots=True, eq=False)
class JoinedRows:
    """Records that were encoded together.

    :ivar body: all records, concatenated.
    :ivar ends: the end of the record of each row.
    """

    body: memoryview
    ends: Numbers

    def piece(self, start: int, stop: int) -> memoryview:
        """Return the records of some rows, concatenated, in their own memory."""
        begin, end = _extent(self.ends, start, stop)
        copy = _memory(end - begin)
        copy[:] = self.body[begin:end]
        return copy

    def in_order(self, rows: Numbers) -> JoinedRows:
        """Return the same records in another order.

        :param rows: the position of each record in these rows.
        """
        pool = pool_of(pa.py_buffer(self.body), np.append(0, self.ends))
        _, offsets, data = pc.take(pool, pa.array(rows), boundscheck=False).buffers()
        ends = np.frombuffer(offsets, self.ends.dtype, len(rows) + 1)[1:]
        return JoinedRows(_bytes_of(data, int(ends[-1])), ends)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRows:
    """The same for records that were measured, and are written when a piece is requested.

    :ivar columns: the columns of the records.
    :ivar order: the row of each record, int64; None if they are in order.
    """

    columns: Columns
    ends: Numbers
    order: Numbers | None = None

    @property
    def body(self) -> memoryview:
        return self.piece(0, len(self.ends))

    def piece(self, start: int, stop: int) -> memoryview:
        begin, end = _extent(self.ends, start, stop)
        memory = _memory(end - begin)
        self.columns.write(memory, self.order, start, stop)
        return memory

    def in_order(self, rows: Numbers) -> MeasuredRows:
        sizes = np.diff(self.ends, prepend=0)[rows]
        return MeasuredRows(self.columns, np.cumsum(sizes), rows.astype(np.int64))


#: The records of a batch.
EncodedRows: TypeAlias = JoinedRows | MeasuredRows


def join_rows(times: Times, fields: Sequence[Field | Entries], count: int) -> JoinedRows:
    """Encode rows without native code."""
    for field in fields:
        field.check()
    if count == 0:
        return JoinedRows(memoryview(b""), np.zeros(0, np.int32))
    time, nanos = times.parts()
    parts = [time, *(part for field in fields for part in field.parts()), *([] if nanos is None else [nanos])]
    sizes = total_sizes(parts, count)
    frame = SHORT.part(sizes)
    data, ends = join([frame, *parts], count, int(np.sum(sizes + frame.sizes)))
    return JoinedRows(_bytes_of(data, int(ends[-1])), ends)


def measure_rows(times: Times, fields: Sequence[Field | Entries], count: int) -> MeasuredRows:
    """Measure rows natively, so that they can be written piece by piece.

    :param count: the number of rows.
    :raises UnsendableError: a text is outside of its column's data.
    """
    from .._columns import Columns  # noqa: PLC0415  # native code is not available everywhere

    constant = isinstance(times.seconds, int)
    seconds = np.full(1, times.seconds, np.int64) if constant else times.seconds
    nanos = None if times.nanos is None else times.nanos.astype(np.int64)
    columns = Columns(count, seconds, nanos)
    for field in fields:
        if isinstance(field, Entries):
            valid = None if field.valid is None else field.valid.astype(np.uint8)
            columns.add_entries(field.places, valid, field.keys, field.items)
        else:
            columns.add_field(field.key, field.texts, field.index)
    ends = np.empty(count, np.int64)
    if not columns.measure(ends):
        for field in fields:
            field.check()
        # The pure check found no such text, so this is a bug.
        raise RuntimeError("a text is outside of its column's data")
    return MeasuredRows(columns, ends)


encode_rows = join_rows if compiled("producer.wire._columns") is None else measure_rows


def _extent(ends: Numbers, start: int, stop: int) -> tuple[int, int]:
    """Return the bounds of the records of some rows."""
    begin = int(ends[start - 1]) if start else 0
    return begin, int(ends[stop - 1]) if stop else 0


def _bytes_of(data: pa.Buffer, size: int) -> memoryview:
    """Return the first bytes of a buffer as unsigned ones: Arrow's are signed, and cannot be joined with others."""
    return memoryview(data).cast("B")[:size]


def _memory(size: int) -> memoryview:
    """Allocate memory from Arrow, which reuses it.

    Python would request it from the system each time, and the first access to its pages takes longer than the copying.
    """
    return memoryview(pa.allocate_buffer(size)).cast("B")
