"""Converts columns to binary arrays of text: :func:`~producer.model.records.text_of` for Arrow types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from .floats import texts_of_floats
from .moments import texts_of_dates, texts_of_times, texts_of_timestamps
from .structures import texts_of_objects
from .values import MAX_OFFSET, UnsendableError, as_binary, is_text, is_view, text_kind

#: Converts an array to texts; nulls stay null. Raises UnsendableError if a value has no text.
Render = Callable[[pa.Array], pa.Array]

# Longer than any number.
_LONGEST_NUMBER = 100


def renderer_of(kind: pa.DataType) -> Render:
    """Return the function that converts the values of a :func:`sendable` type to text."""
    return next(render for applies, render in _RULES if applies(kind))


def sendable(kind: pa.DataType) -> bool:
    """Return True if ``send`` has texts for the values: the type contains no duration or interval."""
    if kinds.is_duration(kind) or kinds.is_interval(kind):
        return False
    if isinstance(kind, pa.BaseExtensionType):
        return sendable(kind.storage_type)
    if kinds.is_dictionary(kind) or kinds.is_run_end_encoded(kind):
        return sendable(kind.value_type)
    return all(sendable(kind.field(position).type) for position in range(kind.num_fields))


def _is_nested(kind: pa.DataType) -> bool:
    return bool(kinds.is_nested(kind)) or not _is_plain_extension(kind)


def _is_plain_extension(kind: pa.DataType) -> bool:
    """Return True if the Python values are those of the storage, or the type is not an extension."""
    if not isinstance(kind, pa.BaseExtensionType):
        return True
    if not isinstance(kind, pa.ExtensionType):  # An extension type of Arrow.
        return type(pa.scalar(None, kind)) is pa.ExtensionScalar
    return kind.__arrow_ext_scalar_class__() is pa.ExtensionScalar


def _texts_of_storage(array: pa.Array) -> pa.Array:
    return _rendered(array.storage)


def dictionary_of(array: pa.RunEndEncodedArray) -> pa.DictionaryArray:
    """Convert runs to a dictionary: their values, and the index of each row."""
    rows = np.arange(array.offset, array.offset + len(array))
    which = np.searchsorted(array.run_ends.to_numpy(), rows, "right")
    return pa.DictionaryArray.from_arrays(which.astype(np.int64), array.values)


def _texts_of_runs(array: pa.RunEndEncodedArray) -> pa.Array:
    return _texts_of_dictionary(dictionary_of(array))


def texts_of_distinct(array: pa.DictionaryArray) -> pa.Array | None:
    """Return the texts of the values of a dictionary, for its indices.

    None if this takes longer, as the array is a slice of a table with a large dictionary. None, too, if a value has no
    text, as it may belong to no row.
    """
    if len(array.dictionary) > len(array):
        return None
    try:
        return _rendered(array.dictionary)
    except UnsendableError:
        return None


def _texts_of_dictionary(array: pa.DictionaryArray) -> pa.Array:
    texts = texts_of_distinct(array)
    if texts is not None:
        return texts.take(array.indices)
    try:
        return _rendered(array.dictionary.take(array.indices))
    except pa.ArrowNotImplementedError:  # pyarrow cannot take from views.
        return texts_of_objects(array)


def _texts_of_nothing(array: pa.Array) -> pa.Array:
    return pa.nulls(len(array), pa.binary())


def texts_of_views(array: pa.Array) -> pa.Array:
    """Convert views to an ordinary array."""
    return array.cast(pa.large_binary())


def _texts_of_fixed(array: pa.Array) -> pa.Array:
    large = len(array) * array.type.byte_width > MAX_OFFSET
    return array.cast(pa.large_binary() if large else pa.binary())


def _texts_of_numbers(array: pa.Array) -> pa.Array:
    return as_binary(array.cast(text_kind(len(array), _LONGEST_NUMBER)))


def _is_exact_number(kind: pa.DataType) -> bool:
    return any(is_it(kind) for is_it in (kinds.is_integer, kinds.is_boolean, kinds.is_decimal))


def _anything(_: pa.DataType) -> bool:
    return True


# The first rule that applies is used. An extension is none of the types that its storage may be.
_RULES: tuple[tuple[Callable[[pa.DataType], Any], Render], ...] = (
    (is_text, as_binary),
    (kinds.is_dictionary, _texts_of_dictionary),
    (_is_exact_number, _texts_of_numbers),
    (kinds.is_floating, texts_of_floats),
    (kinds.is_timestamp, texts_of_timestamps),
    (kinds.is_date, texts_of_dates),
    (kinds.is_time, texts_of_times),
    (kinds.is_fixed_size_binary, _texts_of_fixed),
    (is_view, texts_of_views),
    (kinds.is_null, _texts_of_nothing),
    (kinds.is_run_end_encoded, _texts_of_runs),
    (_is_nested, texts_of_objects),
    (lambda kind: isinstance(kind, pa.BaseExtensionType), _texts_of_storage),
    (_anything, texts_of_objects),
)


def _rendered(array: pa.Array) -> pa.Array:
    return renderer_of(array.type)(array)
