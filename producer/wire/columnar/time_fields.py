"""Encodes Time and Time_ns of each record: of one moment for all, or of a column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..protobuf import varint
from ..text import MAX_TIME
from .gather import Part
from .moments import PER_SECOND
from .values import MAX_OFFSET, Numbers, UnsendableError, binary_of, integers, valid_of

# A varint of 32 bits from this value on has five bytes.
_FIVE_BYTES = 1 << 28


def is_time(kind: pa.DataType) -> bool:
    """Return True if a column of this type can be the time of its logs."""
    return bool(pa.types.is_integer(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None))


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """The times of the logs.

    :ivar seconds: seconds since the epoch, int64; one number if it is the same for all.
    :ivar nanos: nanoseconds within the second, int64; None if all are 0.
    """

    seconds: Numbers | int
    nanos: Numbers | None

    def parts(self) -> tuple[Part, Part | None]:
        """Return the Time fields, and the Time_ns fields if there are any."""
        if isinstance(self.seconds, int):
            field = b"\x08" + varint(self.seconds)
            return Part(binary_of([field]), 0, len(field)), None
        return _seconds(self.seconds), None if self.nanos is None else _nanos(self.nanos)


def of_column(array: pa.Array, now: int) -> Times:
    """Return the times in a column.

    :param array: seconds since the epoch, or timestamps with a zone.
    :param now: the time for null, seconds since the epoch.
    :raises UnsendableError: a moment is out of range of ``Time``.
    """
    seconds, nanos = _split(array)
    valid = valid_of(array)
    wrong = (seconds < 0) | (seconds > MAX_TIME)
    if wrong.any():
        position = int(np.argmax(wrong))
        raise UnsendableError(
            position, f"{_shown(array[position])} is not a time from 0 to {MAX_TIME} seconds after 1970"
        )
    seconds = seconds.astype(np.int64)
    if valid is not None:
        seconds = np.where(valid, seconds, now)
    return Times(seconds, nanos if nanos is not None and nanos.any() else None)


def _split(array: pa.Array) -> tuple[Numbers, Numbers | None]:
    """Split times into seconds and nanoseconds; 0 for null."""
    if pa.types.is_integer(array.type):
        return array.fill_null(0).to_numpy(), None
    per_second = PER_SECOND[array.type.unit]
    seconds, fraction = np.divmod(integers(array, pa.int64()), per_second)
    return seconds, fraction * (PER_SECOND["ns"] // per_second)


def _seconds(seconds: Numbers) -> Part:
    if seconds.min() < _FIVE_BYTES:
        distinct = pa.array(seconds).dictionary_encode()
        fields = [b"\x08" + varint(moment) for moment in distinct.dictionary.to_pylist()]
        which = distinct.indices.to_numpy()
        return Part(binary_of(fields), which, np.array([len(field) for field in fields])[which])
    table = np.empty((len(seconds), 6), np.uint8)
    table[:, 0] = 0x08
    for place in range(5):
        table[:, place + 1] = (seconds >> 7 * place) & 0x7F | (0x80 if place < 4 else 0)
    return Part(_of_table(table), None, 6)


def _nanos(nanos: Numbers) -> Part:
    table = np.empty((len(nanos), 5), np.uint8)
    table[:, 0] = 0x25
    table[:, 1:] = nanos.astype("<u4").view(np.uint8).reshape(-1, 4)
    fields = pc.if_else(pa.array(nanos != 0), _of_table(table), pa.scalar(b""))
    return Part(fields, None, np.where(nanos != 0, 5, 0))


def _of_table(table: Numbers) -> pa.Array:
    """Return the rows of a table of bytes as a binary array."""
    rows, width = table.shape
    offsets = np.arange(0, table.size + 1, width)
    kind, number = (pa.large_binary(), np.int64) if table.size > MAX_OFFSET else (pa.binary(), np.int32)
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(offsets.astype(number)), pa.py_buffer(table)])


def _shown(value: pa.Scalar) -> str:
    try:
        return str(value)
    except (ValueError, OverflowError):  # A moment beyond Python's range.
        return f"{value.value} {value.type}"
