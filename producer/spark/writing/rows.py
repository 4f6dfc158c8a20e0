"""Rows of a partition with the numbers that they have in it; and Python rows as Arrow columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Self

import numpy as np
import pyarrow as pa

from ...model.errors import InvalidArgumentError
from ...wire.text import text_of
from .options import Columns

#: Rows that are made into one batch of columns.
_ROWS_A_BATCH = 4096

# A label is shown up to this many characters.
_LABEL_LENGTH = 200

# The types whose text Arrow's columns give as ``send`` does; whatever else there is becomes text first.
_COLUMN_TYPES: dict[type, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
}


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a partition, in order.

    :ivar batch: their columns.
    :ivar numbers: their numbers in the partition, from 0: a ``range``, or an array.
    :ivar labels: the columns whose values name a row in messages.
    """

    batch: pa.RecordBatch
    numbers: range | np.ndarray[Any, Any]
    labels: tuple[str, ...] = ()

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Self:
        """Several as one; they have the same columns."""
        batch = pa.concat_batches([part.batch for part in parts])
        return cls(batch, np.concatenate([np.asarray(part.numbers) for part in parts]), parts[0].labels)

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def __str__(self) -> str:
        first, last = int(self.numbers[0]), int(self.numbers[-1])
        begin, end = self._label(0), self._label(len(self) - 1)
        if len(self) == 1:
            return f"row {first}" + (f" ({begin})" if begin else "")
        notes = [] if last - first + 1 == len(self) else [f"{len(self)} of them"]
        notes += [f"{begin} to {end}"] if begin else []
        return f"rows {first} to {last}" + (f" ({'; '.join(notes)})" if notes else "")

    def _label(self, place: int) -> str:
        """What names a row besides its number, in a few words."""
        columns = [(name, self.batch.column(name)) for name in self.labels if name in self.batch.schema.names]
        return ", ".join(f"{name} {_shown(column[place])}" for name, column in columns)

    def pick(self, rows: range | pa.Array | np.ndarray) -> Rows:
        """Those of the rows that stand at these places."""
        if isinstance(rows, range):
            return Rows(self.batch.slice(rows.start, len(rows)), self.numbers[rows.start : rows.stop], self.labels)
        places = np.asarray(rows)
        return Rows(self.batch.take(pa.array(places)), np.asarray(self.numbers)[places], self.labels)

    def copied(self) -> Rows:
        """The same without the batch that they were picked from, which they would keep in memory."""
        try:
            return Rows(self.batch.take(pa.array(np.arange(len(self)))), self.numbers, self.labels)
        except pa.ArrowNotImplementedError:  # a column of views
            return self

    def without(self, taken: Iterable[range | pa.Array]) -> Rows:
        """Those of the rows that stand at none of these places."""
        left = np.ones(len(self), dtype=bool)
        for rows in taken:
            left[slice(rows.start, rows.stop) if isinstance(rows, range) else np.asarray(rows)] = False
        return self if left.all() else self.pick(np.flatnonzero(left))

    def halves(self) -> tuple[Rows, Rows]:
        """Cut in two."""
        middle = len(self) // 2
        return self.pick(range(middle)), self.pick(range(middle, len(self)))


def _shown(value: pa.Scalar) -> str:
    try:
        return str(value.as_py())[:_LABEL_LENGTH]
    except (ValueError, OverflowError, pa.ArrowException):  # no text, or a time beyond Python's
        return repr(value)[:_LABEL_LENGTH]


def batches_of(rows: Iterable[Any], columns: Columns) -> Iterator[pa.RecordBatch]:
    """Python rows as batches of columns; a new batch where the names of the fields change.

    :param rows: ``Row`` objects, mappings, or tuples with names (``_fields``).
    :param columns: those of times and contents stay times and maps.
    :raises InvalidArgumentError: a value that cannot become text.
    :raises TypeError: a row without names.
    """
    remaining = iter(rows)
    while chunk := list(islice(remaining, _ROWS_A_BATCH)):
        start = 0
        names = names_of(chunk[0])
        for place, row in enumerate(chunk):
            if (fields := _quick_names(row)) is not names and (fields := names_of(row)) != names:
                yield _batch(chunk[start:place], names, columns)
                start, names = place, fields
        yield _batch(chunk[start:], names, columns)


def _quick_names(row: Any) -> Any:
    return getattr(row, "__fields__", None)


def names_of(row: Any) -> Sequence[str]:
    """The names of a row's fields.

    :raises TypeError: it has none.
    """
    for attribute in ("__fields__", "_fields"):
        names: Sequence[str] | None = getattr(row, attribute, None)
        if names is not None and isinstance(row, tuple):
            return names
    if isinstance(row, Mapping):
        return tuple(row)
    raise TypeError(f"a row must be a Row, a mapping or a named tuple, got {type(row).__qualname__}")


def _batch(rows: Sequence[Any], names: Sequence[str], columns: Columns) -> pa.RecordBatch:
    values = [row.values() if isinstance(row, Mapping) else row for row in rows]
    given = list(zip(*values, strict=True)) if names else []
    if not given:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
    special = {columns.time: times_of, columns.contents: contents_of}
    arrays = [special.get(name, column_of)(name, column) for name, column in zip(names, given, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def times_of(name: str, values: Sequence[Any]) -> pa.Array:
    """Times as a column: of integers, or of moments, which are local time where they have no zone.

    :raises InvalidArgumentError: other values.
    """
    kinds = set(map(type, values)) - {type(None)}
    if kinds <= {int}:
        return pa.array(values, pa.int64())
    if not all(value is None or isinstance(value, datetime) for value in values):
        names = ", ".join(sorted(kind.__qualname__ for kind in kinds))
        raise InvalidArgumentError(f"column {name!r}: times must be integers of Unix seconds or datetimes, got {names}")
    return pa.array([None if value is None else value.astimezone(UTC) for value in values], pa.timestamp("us", "UTC"))


def contents_of(name: str, values: Sequence[Any]) -> pa.Array:
    """Mappings as a column of maps.

    :raises InvalidArgumentError: other values.
    """
    if not all(value is None or isinstance(value, Mapping) for value in values):
        raise InvalidArgumentError(f"column {name!r}: contents must be mappings")
    pairs = [
        None if value is None else [(key, _bytes_of(key, inner)) for key, inner in value.items()] for value in values
    ]
    return pa.array(pairs, pa.map_(pa.string(), pa.binary()))


def _bytes_of(name: str, value: Any) -> bytes | None:
    text = None if value is None else text_of(_plain(value), name)
    return text.encode() if isinstance(text, str) else text


def column_of(name: str, values: Sequence[Any]) -> pa.Array:
    """Values as a column whose texts are those that ``send`` would make of them."""
    kinds = set(map(type, values)) - {type(None)}
    if len(kinds) <= 1:
        kind = _COLUMN_TYPES.get(kinds.pop()) if kinds else pa.string()
        if kind is not None:
            try:
                return pa.array(values, kind)
            except (OverflowError, UnicodeEncodeError, pa.ArrowException):
                pass  # a number of more than 64 bits, half a surrogate pair: the long way, with its own error
    texts = [None if value is None else text_of(_plain(value), name) for value in values]
    try:
        return pa.array([text.encode() if isinstance(text, str) else text for text in texts], pa.binary())
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"field {name!r}: the text is not valid Unicode: {error}") from error


def _plain(value: Any) -> Any:
    """A ``Row`` inside a value as the mapping that it stands for."""
    if isinstance(value, tuple) and hasattr(value, "__fields__"):
        return {name: _plain(inner) for name, inner in zip(value.__fields__, value, strict=True)}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return value
