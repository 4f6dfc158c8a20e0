"""Columns as fields of logs: one field of each row, or the entries of a map."""

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

    :ivar key: its name, UTF-8.
    :ivar texts: its texts: a string or binary array of any kind.
    :ivar index: which of them each row has, int64; as many as there are means none. None if row and position are equal.
    :ivar prefixes: what precedes a text, for the twin that needs it.
    """

    key: bytes
    texts: pa.Array
    index: Numbers | None
    prefixes: Prefixes

    def check(self) -> None:
        """Look where the texts are.

        :raises UnsendableError: one is outside of its array's data.
        """
        try:
            check_texts(self.texts)
        except UnsendableError as error:
            row = error.position if self.index is None else int(np.argmax(self.index == error.position))
            raise UnsendableError(row, f"field {self.key.decode()!r}: {error.reason}") from error

    def parts(self) -> list[Part]:
        """The field as parts of the rows."""
        texts = as_binary(self.texts) if is_text(self.texts.type) else texts_of_views(self.texts)
        field = _field(self.prefixes, texts)
        return field if self.index is None else [_chosen(field, len(texts), self.index)]


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """The fields of each row that are entries of a map.

    :ivar places: where each row begins among the entries, and where the last one ends, int64.
    :ivar valid: whether a row has entries at all; None if all do.
    :ivar keys: their names: a string or binary array of any kind without nulls.
    :ivar items: their texts, likewise; a null is no field.
    """

    places: Numbers
    valid: Numbers | None
    keys: pa.Array
    items: pa.Array

    def check(self) -> None:
        """See :meth:`Field.check`."""
        for texts in (self.keys, self.items):
            try:
                check_texts(texts)
            except UnsendableError as error:
                raise UnsendableError(_row_of(error.position, self.places), f"an entry: {error.reason}") from error

    def parts(self) -> list[Part]:
        """The fields as parts of the rows."""
        return [_sliced(*_without_nulls(self.keys, self.items, self.places), self.valid)]


class FieldColumn:
    """A column whose values are one field of each row that has one.

    :param name: the field.
    :param render: makes the texts of its values.
    """

    def __init__(self, name: str, render: Render) -> None:
        self._name = name
        self._key = free_key(name.encode())
        self._prefixes = of_key(self._key)
        self._render = render

    def estimate(self, array: pa.Array) -> int:
        """About how many bytes the fields will be."""
        return estimate_field(array, self._name)

    def check(self, array: pa.Array) -> None:
        """Look where the values of a batch are, but for texts and positions in a dictionary: :meth:`fields` and
        :meth:`Field.check` do that.

        :raises UnsendableError: one is outside of the array's data.
        """
        if kinds.is_dictionary(array.type):
            check_parts(array.dictionary)
        elif not is_text(array.type) and not is_view(array.type):
            check_parts(array)

    def fields(self, array: pa.Array) -> Field:
        """The field in each row.

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
    """The field put together once for each of ``count`` distinct values, from which each row chooses."""
    offsets = _offsets_of(total_sizes(field, count))
    data, _ = join(field, count, int(offsets[-1]))
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

    def check(self, array: pa.MapArray) -> None:
        """See :meth:`FieldColumn.check`."""
        check_ascending(array.offsets.to_numpy())
        for part in (array.keys, array.items):
            if not is_text(part.type) and not is_view(part.type):
                check_parts(part)

    def fields(self, array: pa.MapArray) -> Entries | None:
        """The fields of each row; None if no row has any.

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
    """The entries that have a value, and where each row begins among them."""
    valid = valid_of(items)
    if valid is None:
        return keys, items, places
    return keys.filter(pa.array(valid)), items.drop_null(), _offsets_of(valid)[places]


def _sliced(keys: pa.Array, items: pa.Array, places: Numbers, valid: Numbers | None) -> Part:
    """The entries put together, and each row its slice of them."""
    fields = _entries(_free_keys(keys), items)
    offsets = _offsets_of(total_sizes(fields, len(keys)))
    data, _ = join(fields, len(keys), int(offsets[-1]))
    rows = offsets[places]
    index, sizes = np.arange(len(rows) - 1), np.diff(rows)
    if valid is not None:  # a null may have entries that nobody shall see
        index, sizes = np.where(valid, index, len(index)), np.where(valid, sizes, 0)
    return Part(pool_of(data, rows), index, sizes)


def _free_keys(keys: pa.Array) -> pa.Array:
    """The keys, which were checked, with other names in place of those that are reserved."""
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
