"""Helpers of the encoder: access to binary arrays, and the error for a value that cannot be sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

#: Integers of NumPy, one per row.
Numbers = np.ndarray[Any, Any]

#: Maximum offset of an ordinary Arrow array, bytes.
MAX_OFFSET = 2**31 - 1


class UnsendableError(Exception):
    """Raised when a value cannot become text.

    :ivar position: the position of the value in the array.
    :ivar reason: the reason.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position, self.reason = position, reason


def is_text(kind: pa.DataType) -> bool:
    """Return True if the values are adjacent texts in one buffer."""
    return any(
        is_it(kind) for is_it in (kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary)
    )


def is_view(kind: pa.DataType) -> bool:
    """Return True if the values are views of texts in several buffers."""
    return bool(kinds.is_string_view(kind) or kinds.is_binary_view(kind))


def valid_of(array: pa.Array) -> Numbers | None:
    """Return a mask of the values that are not null; None if all are."""
    if array.null_count == 0:
        return None
    valid: Numbers = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def offsets_of(array: pa.Array) -> Numbers:
    """Return the offsets of a string or binary array: the start of each value, and the end of the last one."""
    large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    kind = np.int64 if large else np.int32
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.zeros(len(array) + 1, kind)
    return np.frombuffer(buffer, kind, len(array) + 1, array.offset * np.dtype(kind).itemsize)


def lengths_of(array: pa.Array, valid: Numbers | None) -> Numbers:
    """Return the lengths of the values of a binary array, bytes; 0 for null.

    :param valid: the result of :func:`valid_of`.
    """
    lengths = np.diff(offsets_of(array))
    return lengths if valid is None else np.where(valid, lengths, 0)


def extent_of(array: pa.Array) -> int:
    """Return the bytes from the first to the last value of a string or binary array, nulls included."""
    offsets = offsets_of(array)
    return int(offsets[-1]) - int(offsets[0])


def binary_of(values: list[bytes | None] | list[bytes]) -> pa.Array:
    """Make a binary array of values."""
    large = sum(len(value) for value in values if value is not None) > MAX_OFFSET
    return pa.array(values, pa.large_binary() if large else pa.binary())


def as_binary(array: pa.Array) -> pa.Array:
    """View a string or binary array as binary, without a copy."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    return array.view(pa.large_binary() if large else pa.binary())


def text_kind(rows: int, longest: int) -> pa.DataType:
    """Return the string type that can hold ``rows`` texts of at most ``longest`` bytes each."""
    return pa.large_string() if rows * longest > MAX_OFFSET else pa.string()


def integers(array: pa.Array, kind: pa.DataType) -> Numbers:
    """Return the integers of an array of numbers or moments; 0 for null.

    :param kind: the integer type of the same width.
    """
    numbers: Numbers = array.view(kind).fill_null(0).to_numpy()
    return numbers


def with_nulls(numbers: Numbers, valid: Numbers | None, kind: pa.DataType) -> pa.Array:
    """Make an array of ``kind`` from its integers."""
    return pa.array(numbers, mask=None if valid is None else ~valid).view(kind)
