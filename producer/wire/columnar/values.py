"""What all parts of the encoder share: binary arrays looked at from outside, and a value that cannot be sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

#: Integers of NumPy, one for each row.
Numbers = np.ndarray[Any, Any]

#: What the offsets of an ordinary Arrow array can tell apart, bytes.
MAX_OFFSET = 2**31 - 1


class UnsendableError(Exception):
    """A value that cannot become text.

    :ivar position: of the value, within the array in question.
    :ivar reason: why.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position, self.reason = position, reason


def is_text(kind: pa.DataType) -> bool:
    """Whether the values are their texts, one behind the other."""
    return any(
        is_it(kind) for is_it in (kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary)
    )


def is_view(kind: pa.DataType) -> bool:
    """Whether the values are their texts, wherever these are."""
    return bool(kinds.is_string_view(kind) or kinds.is_binary_view(kind))


def valid_of(array: pa.Array) -> Numbers | None:
    """For each value whether it is not null; None if all are."""
    if array.null_count == 0:
        return None
    valid: Numbers = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def offsets_of(array: pa.Array) -> Numbers:
    """Where the values of a string or binary array begin in its data, and where the last one ends: one more than
    values.
    """
    large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    kind = np.int64 if large else np.int32
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.zeros(len(array) + 1, kind)
    return np.frombuffer(buffer, kind, len(array) + 1, array.offset * np.dtype(kind).itemsize)


def lengths_of(array: pa.Array, valid: Numbers | None) -> Numbers:
    """The lengths of a binary array's values, bytes; 0 for null.

    :param valid: of :func:`valid_of`.
    """
    lengths = np.diff(offsets_of(array))
    return lengths if valid is None else np.where(valid, lengths, 0)


def extent_of(array: pa.Array) -> int:
    """The bytes between the first and the last value of a string or binary array, nulls included."""
    offsets = offsets_of(array)
    return int(offsets[-1]) - int(offsets[0])


def binary_of(values: list[bytes | None] | list[bytes]) -> pa.Array:
    """A binary array of some values."""
    large = sum(len(value) for value in values if value is not None) > MAX_OFFSET
    return pa.array(values, pa.large_binary() if large else pa.binary())


def as_binary(array: pa.Array) -> pa.Array:
    """A string or binary array as binary, without a copy."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    return array.view(pa.large_binary() if large else pa.binary())


def text_kind(rows: int, longest: int) -> pa.DataType:
    """The string type that holds some texts of at most ``longest`` bytes each."""
    return pa.large_string() if rows * longest > MAX_OFFSET else pa.string()


def integers(array: pa.Array, kind: pa.DataType) -> Numbers:
    """The integers behind an array of numbers or moments; 0 for null.

    :param kind: the integer type of the same width.
    """
    numbers: Numbers = array.view(kind).fill_null(0).to_numpy()
    return numbers


def with_nulls(numbers: Numbers, valid: Numbers | None, kind: pa.DataType) -> pa.Array:
    """An array of ``kind`` from its integers."""
    return pa.array(numbers, mask=None if valid is None else ~valid).view(kind)
