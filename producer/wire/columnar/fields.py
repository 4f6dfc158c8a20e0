"""Columns as fields of logs: one field of each row, or the entries of a map."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from .estimate import estimate_contents, estimate_field
from .gather import Part, join, pool_of, total_sizes
from .prefixes import LONG, SHORT, Prefixes, of_key
from .texts import Render, dictionary_of, texts_of_distinct
from .values import Numbers, UnsendableError, lengths_of, valid_of


class FieldColumn:
    """A column whose values are one field of each row that has one.

    :param name: the field.
    :param render: makes the texts of its values.
    """

    def __init__(self, name: str, render: Render) -> None:
        self._name = name
        self._prefixes = of_key(name.encode())
        self._render = render

    def estimate(self, array: pa.Array) -> int:
        """About how many bytes the fields will be."""
        return estimate_field(array, self._name)

    def parts(self, array: pa.Array) -> list[Part]:
        """The field in each row.

        :raises UnsendableError: a value has no text.
        """
        chosen = dictionary_of(array) if kinds.is_run_end_encoded(array.type) else array
        distinct = texts_of_distinct(chosen) if kinds.is_dictionary(chosen.type) else None
        if distinct is not None:
            return [_chosen(_field(self._prefixes, distinct), len(distinct), chosen.indices)]
        return _field(self._prefixes, self._render(array))


def _field(prefixes: Prefixes, texts: pa.Array) -> list[Part]:
    valid = valid_of(texts)
    lengths = lengths_of(texts, valid)
    return [prefixes.part(lengths, valid), Part(texts, None, lengths)]


def _chosen(field: Sequence[Part], count: int, indices: pa.Array) -> Part:
    """The field put together once for each of ``count`` distinct values, from which each row chooses."""
    offsets = _offsets_of(total_sizes(field, count))
    data, _ = join(field, count, int(offsets[-1]))
    index = indices.cast(pa.int64()).fill_null(count).to_numpy()
    return Part(pool_of(data, offsets), index, np.append(np.diff(offsets), 0)[index])


def _offsets_of(sizes: Numbers) -> Numbers:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


class ContentsColumn:
    """A map whose entries are fields of its row: all entries are encoded as one run, which rows are slices of.

    :param render_key: makes the texts of its keys.
    :param render_item: makes the texts of its values.
    """

    def __init__(self, render_key: Render, render_item: Render) -> None:
        self._render_key, self._render_item = render_key, render_item

    def estimate(self, array: pa.MapArray) -> int:
        """About how many bytes the fields will be."""
        return estimate_contents(array)

    def parts(self, array: pa.MapArray) -> list[Part]:
        """The fields of each row.

        :raises UnsendableError: a value has no text, or a key is null.
        """
        places = array.offsets.to_numpy()
        first, count = int(places[0]), int(places[-1] - places[0])
        places = places - first
        if count == 0:
            return []
        entries = [
            _rendered(render, column.slice(first, count), places)
            for render, column in ((self._render_key, array.keys), (self._render_item, array.items))
        ]
        return [_sliced(*_without_nulls(entries[0], entries[1], places), valid_of(array))]


def _rendered(render: Render, values: pa.Array, places: Numbers) -> pa.Array:
    try:
        return render(values)
    except UnsendableError as error:
        raise UnsendableError(_row_of(error.position, places), error.reason) from error


def _row_of(entry: int, places: Numbers) -> int:
    return int(np.searchsorted(places, entry, "right")) - 1


def _without_nulls(keys: pa.Array, items: pa.Array, places: Numbers) -> tuple[pa.Array, pa.Array, Numbers]:
    """The entries that have a value, and where each row begins among them."""
    if keys.null_count:
        raise UnsendableError(_row_of(keys.is_null().index(True).as_py(), places), "a key is null")
    valid = valid_of(items)
    if valid is None:
        return keys, items, places
    return keys.filter(pa.array(valid)), items.drop_null(), _offsets_of(valid)[places]


def _sliced(keys: pa.Array, items: pa.Array, places: Numbers, valid: Numbers | None) -> Part:
    """The entries put together, and each row its slice of them."""
    fields = _entries(keys, items)
    offsets = _offsets_of(total_sizes(fields, len(keys)))
    data, _ = join(fields, len(keys), int(offsets[-1]))
    rows = offsets[places]
    index, sizes = np.arange(len(rows) - 1), np.diff(rows)
    if valid is not None:  # a null may have entries that nobody shall see
        index, sizes = np.where(valid, index, len(index)), np.where(valid, sizes, 0)
    return Part(pool_of(data, rows), index, sizes)


def _entries(keys: pa.Array, items: pa.Array) -> list[Part]:
    key_lengths, item_lengths = lengths_of(keys, None), lengths_of(items, None)
    before_key, before_item = SHORT.part(key_lengths), LONG.part(item_lengths)
    key, item = Part(keys, None, key_lengths), Part(items, None, item_lengths)
    parts = [before_key, key, before_item, item]
    return [LONG.part(total_sizes(parts, len(keys))), *parts]
