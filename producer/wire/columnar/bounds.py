"""Checks that Arrow data is within its buffers: arrays made by hand, or by other libraries, may point anywhere.

``validate`` checks the ends of arrays at no cost, for every slice. This module checks the offsets between the ends,
once per batch. Plain texts are excluded, as their encoders check them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from .values import Numbers, UnsendableError, is_text, is_view, offsets_of, valid_of


def check_texts(array: pa.Array) -> None:
    """Check the texts of a string or binary array of any kind.

    :raises UnsendableError: a text is outside of the array's data.
    """
    wrong = _views_outside(array) if is_view(array.type) else np.diff(offsets_of(array)) < 0
    if wrong.any():
        position = int(np.argmax(wrong))
        raise UnsendableError(position, "it is outside of the column's data; check the array with validate(full=True)")


def _views_outside(array: pa.Array) -> Numbers:
    _, buffer, *data = array.buffers()
    if buffer is None:
        return np.zeros(len(array), bool)
    views = np.frombuffer(buffer, np.int32, 4 * len(array), 16 * array.offset).reshape(-1, 4).astype(np.int64)
    sizes, which, starts = views[:, 0], views[:, 2], views[:, 3]
    ends = np.array([*(part.size for part in data), -1])
    limits = ends[np.where((which >= 0) & (which < len(data)), which, len(data))]
    wrong: Numbers = (sizes < 0) | ((sizes > 12) & ((starts < 0) | (starts + sizes > limits)))
    valid = valid_of(array)
    return wrong if valid is None else wrong & valid


def check_positions(array: pa.DictionaryArray) -> None:
    """Check the indices of a dictionary array; Arrow does not check those of other libraries.

    :raises UnsendableError: an index is not in the dictionary.
    """
    extent, size = pc.min_max(array.indices), len(array.dictionary)
    if extent["max"].is_valid and not 0 <= extent["min"].as_py() <= extent["max"].as_py() < size:
        wrong = [n for n, index in enumerate(array.indices.to_pylist()) if index is not None and not 0 <= index < size]
        raise UnsendableError(
            wrong[0], f"the index {array.indices[wrong[0]]} is not in its dictionary of {size} values"
        )


def check_parts(array: pa.Array) -> None:
    """Check all parts of an array, at any depth; ``validate`` has checked its ends.

    :raises UnsendableError: a value is outside of the array's data; the position is 0 if it is unknown.
    """
    kind = array.type
    if is_text(kind) or is_view(kind):
        check_texts(array)
    elif kinds.is_dictionary(kind):
        check_positions(array)
        check_parts(array.dictionary)
    elif kinds.is_run_end_encoded(kind):
        check_ascending(array.run_ends.to_numpy())
        check_parts(array.values)
    elif isinstance(array, pa.ExtensionArray):
        check_parts(array.storage)
    elif kinds.is_nested(kind):
        for part in _parts_of_nested(array):
            check_parts(part)


def _parts_of_nested(array: pa.Array) -> Iterator[pa.Array]:
    kind = array.type
    if kinds.is_struct(kind):
        yield from (array.field(position) for position in range(kind.num_fields))
    elif kinds.is_map(kind):
        check_ascending(array.offsets.to_numpy())
        yield from (array.keys, array.items)
    elif kinds.is_list(kind) or kinds.is_large_list(kind):
        check_ascending(array.offsets.to_numpy())
        yield array.values
    elif kinds.is_fixed_size_list(kind):
        yield array.values
    else:  # Unions and views of lists, which are rare.
        try:
            array.validate(full=True)
        except pa.ArrowException as error:
            raise UnsendableError(0, str(error)) from error


def check_ascending(places: Numbers) -> None:
    """Check that the offsets of a nested array ascend.

    :raises UnsendableError: a row ends before it begins.
    """
    wrong = np.diff(places) < 0
    if wrong.any():
        position = int(np.argmax(wrong))
        raise UnsendableError(position, f"it ends before it begins, from {places[position]} to {places[position + 1]}")
