"""Converts columns to fields of logs: one field of each row, or the entries of a map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from ..reserved import free_key
from .bounds import check_ascending, check_parts, check_positions, check_texts
from .estimate import estimate_contents, estimate_field
from .gather import Part, join, pool_of, total_sizes
from .prefixes import LONG, SHORT, Prefixes, of_key
from .texts import Render, dictionary_of, texts_of_distinct, texts_of_views
from .values import Numbers, UnsendableError, as_binary, is_text, is_view, lengths_of, valid_of


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One field of each row that has it.

    :ivar key: the field name, UTF-8.
    :ivar texts: a string or binary array of any kind with the texts.
    :ivar index: the position in ``texts`` for each row, int64; ``len(texts)`` for no field. None if positions equal
        rows.
    :ivar prefixes: the bytes before each text, for the pure implementation.
    """

    key: bytes
    texts: pa.Array
    index: Numbers | None
    prefixes: Prefixes

    def check(self) -> None:
        """Check that the texts are within their buffers.

        :raises UnsendableError: one is not.
        """
        try:
            check_texts(self.texts)
        except UnsendableError as error:
            row = error.position if self.index is None else int(np.argmax(self.index == error.position))
            raise UnsendableError(row, f"field {self.key.decode()!r}: {error.reason}") from error

    def parts(self) -> list[Part]:
        """Return the field as parts of the rows."""
        texts = as_binary(self.texts) if is_text(self.texts.type) else texts_of_views(self.texts)
        field = _field(self.prefixes, texts)
        return field if self.index is None else [_chosen(field, len(texts), self.index)]


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """The fields of each row that are entries of a map.

    :ivar places: the start of each row in the entries, and the end of the last one, int64.
    :ivar valid: a mask of the rows that have a map; None if all have one.
    :ivar keys: a string or binary array of any kind with the field names, without nulls.
    :ivar items: an array of the same kind with the texts; null is no field.
    """

    places: Numbers
    valid: Numbers | None
    keys: pa.Array
    items: pa.Array

    def check(self) -> None:
        """Check that the texts are within their buffers.

        :raises UnsendableError: one is not.
        """
        for texts in (self.keys, self.items):
            try:
                check_texts(texts)
            except UnsendableError as error:
                raise UnsendableError(_row_of(error.position, self.places), f"an entry: {error.reason}") from error

    def parts(self) -> list[Part]:
        """Return the fields as parts of the rows."""
        return [_sliced(*_without_nulls(self.keys, self.items, self.places), self.valid)]


class FieldColumn:
    """A column whose values are one field of each row that has one.

    :param name: the field name.
    :param render: the function that converts its values to text.
    """

    def __init__(self, name: str, render: Render) -> None:
        self._name = name
        self._key = free_key(name.encode())
        self._prefixes = of_key(self._key)
        self._render = render

    def estimate(self, array: pa.Array) -> int:
        """Return an estimate of the bytes of the fields."""
        return estimate_field(array, self._name)

    def check(self, array: pa.Array) -> None:
        """Check that the values of a batch are within their buffers.

        Texts and indices are excluded, as :meth:`fields` and :meth:`Field.check` check these.

        :raises UnsendableError: a value is outside of the array's data.
        """
        if kinds.is_dictionary(array.type):
            check_parts(array.dictionary)
        elif not is_text(array.type) and not is_view(array.type):
            check_parts(array)

    def fields(self, array: pa.Array) -> Field:
        """Return the field of each row.

        :raises UnsendableError: a value has no text.
        """
        chosen = dictionary_of(array) if kinds.is_run_end_encoded(array.type) else array
        texts = None
        if kinds.is_dictionary(chosen.type):
            check_positions(chosen)
            texts = texts_of_distinct(chosen)
        if texts is None:
            texts = array if is_text(array.type) or is_view(array.type) else self._render(array)
            return Field(self._key, texts, None, self._prefixes)
        index = chosen.indices.cast(pa.int64()).fill_null(len(texts)).to_numpy()
        return Field(self._key, texts, index, self._prefixes)


def _field(prefixes: Prefixes, texts: pa.Array) -> list[Part]:
    valid = valid_of(texts)
    lengths = lengths_of(texts, valid)
    return [prefixes.part(lengths, valid), Part(texts, None, lengths)]


def _chosen(field: Sequence[Part], count: int, index: Numbers) -> Part:
    """Encode the field once for each of ``count`` distinct values, of which each row uses one."""
    offsets = _offsets_of(total_sizes(field, count))
    data, _ = join(field, count, int(offsets[-1]))
    return Part(pool_of(data, offsets), index, np.append(np.diff(offsets), 0)[index])


def _offsets_of(sizes: Numbers) -> Numbers:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


class ContentsColumn:
    """A map whose entries are fields of its row. All entries are encoded together, and rows are slices of them.

    :param render_key: the function that converts its keys to text.
    :param render_item: the function that converts its values to text.
    """

    def __init__(self, render_key: Render, render_item: Render) -> None:
        self._render_key, self._render_item = render_key, render_item

    def estimate(self, array: pa.MapArray) -> int:
        """Return an estimate of the bytes of the fields."""
        return estimate_contents(array)

    def check(self, array: pa.MapArray) -> None:
        """Check that offsets, keys and values are within their buffers, as :meth:`FieldColumn.check` does."""
        check_ascending(array.offsets.to_numpy())
        for part in (array.keys, array.items):
            if not is_text(part.type) and not is_view(part.type):
                check_parts(part)

    def fields(self, array: pa.MapArray) -> Entries | None:
        """Return the fields of each row; None if no row has any.

        :raises UnsendableError: a value has no text, or a key is null.
        """
        places = array.offsets.to_numpy()
        first, count = int(places[0]), int(places[-1] - places[0])
        places = places.astype(np.int64) - first
        if count == 0:
            return None
        keys, items = (
            _rendered(render, column.slice(first, count), places)
            for render, column in ((self._render_key, array.keys), (self._render_item, array.items))
        )
        if keys.null_count:
            raise UnsendableError(_row_of(keys.is_null().index(True).as_py(), places), "a key is null")
        return Entries(places, valid_of(array), keys, items)


def _rendered(render: Render, values: pa.Array, places: Numbers) -> pa.Array:
    try:
        return render(values)
    except UnsendableError as error:
        raise UnsendableError(_row_of(error.position, places), error.reason) from error


def _row_of(entry: int, places: Numbers) -> int:
    return int(np.searchsorted(places, entry, "right")) - 1


def _without_nulls(keys: pa.Array, items: pa.Array, places: Numbers) -> tuple[pa.Array, pa.Array, Numbers]:
    """Return the entries that have a value, and the start of each row in them."""
    valid = valid_of(items)
    if valid is None:
        return keys, items, places
    return keys.filter(pa.array(valid)), items.drop_null(), _offsets_of(valid)[places]


def _sliced(keys: pa.Array, items: pa.Array, places: Numbers, valid: Numbers | None) -> Part:
    """Encode all entries, and return each row as a slice of them."""
    fields = _entries(_free_keys(keys), items)
    offsets = _offsets_of(total_sizes(fields, len(keys)))
    data, _ = join(fields, len(keys), int(offsets[-1]))
    rows = offsets[places]
    index, sizes = np.arange(len(rows) - 1), np.diff(rows)
    if valid is not None:  # A null may have entries, which must stay hidden.
        index, sizes = np.where(valid, index, len(index)), np.where(valid, sizes, 0)
    return Part(pool_of(data, rows), index, sizes)


def _free_keys(keys: pa.Array) -> pa.Array:
    """Return the keys, with other names in place of reserved ones."""
    texts = texts_of_views(keys) if is_view(keys.type) else keys
    if not pc.any(pc.starts_with(texts, "__")).as_py():
        return keys
    return pa.array([free_key(key.encode() if isinstance(key, str) else key) for key in keys.to_pylist()], pa.binary())


def _entries(keys: pa.Array, items: pa.Array) -> list[Part]:
    key_lengths, item_lengths = lengths_of(keys, None), lengths_of(items, None)
    before_key, before_item = SHORT.part(key_lengths), LONG.part(item_lengths)
    key, item = Part(keys, None, key_lengths), Part(items, None, item_lengths)
    parts = [before_key, key, before_item, item]
    return [LONG.part(total_sizes(parts, len(keys))), *parts]
