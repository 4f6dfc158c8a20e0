"""Converts the fields of many logs to Arrow columns, without a Python object per field.

Each field is given as the bytes of its ``Content`` message: a tag and a length, the key, a tag and a length, the value.
Their offsets are computed for all fields at once, and the bytes are not copied.

Source: LogHub protocol, Protobuf; the encoding of protobuf messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from .schema import Content

_KEY_TAG, _VALUE_TAG = 0x0A, 0x12  # The tags of fields 1 and 2, which are length-delimited.
# A length of up to 32 bits has at most 35 bits in groups of seven.
_VARINT_SHIFTS = range(0, 35, 7)

# Above this number of pairs of row and name, a sort finds duplicates with less memory than a table of all pairs.
_MOST_PAIRS = 8_000_000


class Fields:
    """The fields of a sequence of logs.

    :param framed: every field of every log, in order, as bytes of its ``Content``.
    :param counts: the number of fields of each log.
    """

    def __init__(self, framed: Sequence[bytes], counts: Sequence[int]) -> None:
        self._rows = len(counts)
        keys, self._values = split_fields(framed)
        encoded = as_text(keys).dictionary_encode()
        self._names = encoded.dictionary
        self._ids = encoded.indices.to_numpy()
        self._row_of = np.repeat(np.arange(self._rows), counts)
        self._numbers = {name: number for number, name in enumerate(self._names.to_pylist())}

    def named(self, name: str) -> Any:
        """Return the value of a field in each log, as bytes; null if it is missing; the last one if it is repeated."""
        number = self._numbers.get(name)
        if number is None:
            return pa.nulls(self._rows, pa.binary())
        places = np.flatnonzero(self._ids == number)
        place_of = np.full(self._rows, -1, dtype=np.int64)
        place_of[self._row_of[places]] = places  # NumPy keeps the last of repeated indices.
        return self._values.take(pa.array(place_of, mask=place_of < 0))

    def as_map(self, kind: Any) -> Any:
        """Return all fields of each log as a map; of a repeated field, the last value is used.

        :param kind: the Arrow type, a map of text to text.
        """
        places = self._without_duplicates()
        counts = np.bincount(self._row_of[places], minlength=self._rows)
        keys = self._names.take(pa.array(self._ids[places]))
        values = as_text(self._values.take(pa.array(places)))
        return pa.MapArray.from_arrays(_offsets(counts.tolist()), keys, values, type=kind)

    def _without_duplicates(self) -> Any:
        """Return the positions of the fields that no later field of the same log replaces."""
        pairs = self._row_of * max(1, len(self._names)) + self._ids
        possible = self._rows * len(self._names)
        if possible <= _MOST_PAIRS:
            seen = np.zeros(possible, dtype=bool)
            seen[pairs] = True
            unique = np.count_nonzero(seen) == len(pairs)
            if unique:
                return np.arange(len(pairs))
        _, from_the_end = np.unique(pairs[::-1], return_index=True)
        return np.sort(len(pairs) - 1 - from_the_end)


def split_fields(framed: Sequence[bytes]) -> tuple[Any, Any]:
    """Split fields into arrays of keys and values, as bytes.

    :param framed: each field as the bytes of its ``Content``.
    :raises ValueError: the bytes of a field are invalid.
    """
    if not framed:
        return pa.array([], pa.binary()), pa.array([], pa.binary())
    array = pa.array(framed, pa.binary())
    cuts = _cuts(array)
    if cuts is None:  # A field has an unusual form, which only the protobuf library can read.
        contents = _decoded(framed)
        return (
            pa.array([content.Key for content in contents], pa.binary()),
            pa.array([content.Value for content in contents], pa.binary()),
        )
    # Each field is four consecutive pieces: tag and length, key, tag and length, value.
    pieces = pa.Array.from_buffers(pa.binary(), len(cuts) - 1, [None, pa.py_buffer(cuts), array.buffers()[2]])
    return tuple(pieces.take(pa.array(np.arange(first, len(cuts) - 1, 4))) for first in (1, 3))


def _decoded(framed: Sequence[bytes]) -> list[Any]:
    try:
        return [Content.FromString(each) for each in framed]
    except DecodeError as error:
        raise ValueError(f"a field of a log is invalid: {error}") from error


def _cuts(array: Any) -> Any:
    """Return the start of the four pieces of each field, and the end of the last one.

    None if a field does not have the usual form: a key of less than 128 bytes, then a value, and nothing else.
    """
    if array.buffers()[2] is None:  # All fields are empty.
        return None
    data = np.frombuffer(array.buffers()[2], np.uint8)
    bounds = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1).astype(np.int64)
    begin, end = bounds[:-1], bounds[1:]
    if (end - begin < 4).any():
        return None
    key_size = data[begin + 1].astype(np.int64)
    value_tag = begin + 2 + key_size
    if not ((data[begin] == _KEY_TAG) & (key_size < 0x80) & (value_tag < end - 1)).all():
        return None
    value, value_size = _varints(data, value_tag + 1)
    if not ((data[value_tag] == _VALUE_TAG) & (value + value_size == end)).all():
        return None
    starts = np.column_stack((begin, begin + 2, value_tag, value)).ravel()
    return np.append(starts, bounds[-1]).astype(np.int32)


def _varints(data: Any, at: Any) -> tuple[Any, Any]:
    """Return the varints at some positions, and the end of each."""
    at, numbers = at.copy(), np.zeros(len(at), dtype=np.int64)
    more = np.ones(len(at), dtype=bool)
    for shift in _VARINT_SHIFTS:
        byte = data[np.minimum(at, len(data) - 1)].astype(np.int64)
        numbers |= np.where(more, (byte & 0x7F) << shift, 0)
        at += more
        more &= byte >= 0x80
        if not more.any():
            break
    return at, numbers


def as_text(array: Any) -> Any:
    r"""Convert bytes to text; bytes that are not UTF-8 become ``\xNN``.

    :param array: an array of bytes.
    """
    text = text_or_none(array)
    if text is not None:
        return text
    shown = [None if each is None else each.decode(errors="backslashreplace") for each in array.to_pylist()]
    return pa.array(shown, pa.string())


def text_or_none(array: Any) -> Any:
    """Convert bytes to text; None if a value is not UTF-8.

    :param array: an array of bytes.
    """
    data = array.buffers()[2]
    if data is None or np.frombuffer(data, np.uint8).max(initial=0) < 0x80:  # ASCII needs no check of each value.
        return array.view(pa.string())
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def map_array(maps: Sequence[dict[str, str]], kind: Any) -> Any:
    """Make an array of mappings.

    :param kind: the Arrow type, a map of text to text.
    """
    keys = pa.array([key for each in maps for key in each], pa.string())
    values = pa.array([value for each in maps for value in each.values()], pa.string())
    return pa.MapArray.from_arrays(_offsets([len(each) for each in maps]), keys, values, type=kind)


def _offsets(counts: Sequence[int]) -> Any:
    return pa.array([0, *accumulate(counts)], pa.int32())
