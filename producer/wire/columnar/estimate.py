"""Estimates the size of an encoded batch from the buffers of its columns, before it is encoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from .values import extent_of

# Bytes of the frame, Time and Time_ns of a record; bytes of the tags and lengths of a field, without its name.
BEFORE_ROW = 18
BEFORE_FIELD = 8

# Maximum text length in bytes; the first type that applies is used.
_WIDTHS: tuple[tuple[Callable[[pa.DataType], Any], int], ...] = (
    (kinds.is_boolean, 5),
    (kinds.is_int8, 4),
    (kinds.is_uint8, 4),
    (kinds.is_int16, 6),
    (kinds.is_uint16, 6),
    (kinds.is_int32, 11),
    (kinds.is_uint32, 11),
    (kinds.is_integer, 20),
    (kinds.is_floating, 24),
    (kinds.is_date, 10),
    (kinds.is_time, 15),
    (kinds.is_timestamp, 38),
)
# JSON is longer than Arrow's buffers: it adds quotes, commas and the field names of a struct.
_JSON = 3
_JSON_ROW = 16


def estimate_field(array: pa.Array, name: str) -> int:
    """Return the bytes of a column that is one field of each row."""
    return _texts(array) + len(array) * (BEFORE_FIELD + len(name.encode()))


def estimate_contents(array: pa.MapArray) -> int:
    """Return the bytes of a column whose entries are fields."""
    places = array.offsets
    first, last = int(places[0].as_py()), int(places[-1].as_py())
    entries = (part.slice(first, last - first) for part in (array.keys, array.items))
    return sum(map(_texts, entries)) + (last - first) * BEFORE_FIELD


def _texts(array: pa.Array) -> int:
    """Return the bytes of the values as text."""
    kind = array.type
    if kinds.is_string(kind) or kinds.is_binary(kind) or kinds.is_large_string(kind) or kinds.is_large_binary(kind):
        return extent_of(array)
    if kinds.is_dictionary(kind):
        return _texts_of_distinct(array.dictionary, len(array))
    if kinds.is_run_end_encoded(kind):
        return _texts_of_distinct(array.values, len(array))
    return _texts_by_type(array, kind)


def _texts_of_distinct(values: pa.Array, rows: int) -> int:
    """Return the bytes of the values if each occurs equally often."""
    return _texts(values) * rows // len(values) if len(values) else 0


def _texts_by_type(array: pa.Array, kind: pa.DataType) -> int:
    width = next((width for applies, width in _WIDTHS if applies(kind)), None)
    if width is not None:
        return len(array) * width
    if kinds.is_decimal(kind):
        return len(array) * (int(kind.precision) + 8)
    expansion = _JSON if kinds.is_nested(kind) else 1
    return _buffer_bytes(array, kind) * expansion + len(array) * _JSON_ROW


def _buffer_bytes(array: pa.Array, kind: pa.DataType) -> int:
    try:
        return int(array.nbytes)
    except pa.ArrowTypeError:  # Older releases of pyarrow cannot measure views.
        if kinds.is_nested(kind):
            return int(array.get_total_buffer_size())  # If this is a slice, the size is that of the whole array.
        return extent_of(array.cast(pa.large_string() if kinds.is_string_view(kind) else pa.large_binary()))
