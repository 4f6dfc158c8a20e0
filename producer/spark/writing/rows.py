"""Rows of a partition with their numbers, and the conversion of Python rows to Arrow columns."""

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

#: The limit of Python rows in one record batch.
_ROWS_A_BATCH = 4096

# The limit of a label's characters.
_LABEL_LENGTH = 200

# The types whose text is the same in Arrow as in ``send``; values of other types become text first.
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
    :ivar numbers: their numbers in the partition, from 0: a ``range`` or an array.
    :ivar labels: the columns whose values name a row in messages.
    """

    batch: pa.RecordBatch
    numbers: range | np.ndarray[Any, Any]
    labels: tuple[str, ...] = ()

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Self:
        """Join rows that have the same columns."""
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
        """Return the label of a row; empty if there is none."""
        columns = [(name, self.batch.column(name)) for name in self.labels if name in self.batch.schema.names]
        return ", ".join(f"{name} {_shown(column[place])}" for name, column in columns)

    def pick(self, rows: range | pa.Array | np.ndarray) -> Rows:
        """Return the rows at these places."""
        if isinstance(rows, range):
            return Rows(self.batch.slice(rows.start, len(rows)), self.numbers[rows.start : rows.stop], self.labels)
        places = np.asarray(rows)
        return Rows(self.batch.take(pa.array(places)), np.asarray(self.numbers)[places], self.labels)

    def copied(self) -> Rows:
        """Return a copy, which does not keep the original batch in memory."""
        try:
            return Rows(self.batch.take(pa.array(np.arange(len(self)))), self.numbers, self.labels)
        except pa.ArrowNotImplementedError:  # a column of views
            return self

    def without(self, taken: Iterable[range | pa.Array]) -> Rows:
        """Return the rows at all other places."""
        left = np.ones(len(self), dtype=bool)
        for rows in taken:
            left[slice(rows.start, rows.stop) if isinstance(rows, range) else np.asarray(rows)] = False
        return self if left.all() else self.pick(np.flatnonzero(left))

    def halves(self) -> tuple[Rows, Rows]:
        """Return both halves."""
        middle = len(self) // 2
        return self.pick(range(middle)), self.pick(range(middle, len(self)))


def _shown(value: pa.Scalar) -> str:
    try:
        return str(value.as_py())[:_LABEL_LENGTH]
    except (ValueError, OverflowError, pa.ArrowException):  # not valid text, or a time out of Python's range
        return repr(value)[:_LABEL_LENGTH]


def batches_of(rows: Iterable[Any], columns: Columns) -> Iterator[pa.RecordBatch]:
    """Convert Python rows to record batches, with a new batch whenever the fields' names change.

    :param rows: ``Row`` objects, mappings, or named tuples.
    :param columns: the columns with a special meaning: times stay times, contents stay maps.
    :raises InvalidArgumentError: a value cannot become text.
    :raises TypeError: a row has no names.
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
    """Return the names of a row's fields.

    :raises TypeError: the row has no names.
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
    """Return a column of integers or of times. A ``datetime`` without a zone is local time.

    :raises InvalidArgumentError: a value is neither an integer nor a ``datetime``.
    """
    kinds = set(map(type, values)) - {type(None)}
    if kinds <= {int}:
        return pa.array(values, pa.int64())
    if not all(value is None or isinstance(value, datetime) for value in values):
        names = ", ".join(sorted(kind.__qualname__ for kind in kinds))
        raise InvalidArgumentError(f"column {name!r}: times must be integers of Unix seconds or datetimes, got {names}")
    return pa.array([None if value is None else value.astimezone(UTC) for value in values], pa.timestamp("us", "UTC"))


def contents_of(name: str, values: Sequence[Any]) -> pa.Array:
    """Return a column of maps.

    :raises InvalidArgumentError: a value is not a mapping.
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
    """Return a column whose texts are those of ``send``.

    :raises InvalidArgumentError: a value cannot become text.
    """
    kinds = set(map(type, values)) - {type(None)}
    if len(kinds) <= 1:
        kind = _COLUMN_TYPES.get(kinds.pop()) if kinds else pa.string()
        if kind is not None:
            try:
                return pa.array(values, kind)
            except (OverflowError, UnicodeEncodeError, pa.ArrowException):
                pass  # more than 64 bits, or a lone surrogate: try the slow way, which raises its own error
    texts = [None if value is None else text_of(_plain(value), name) for value in values]
    try:
        return pa.array([text.encode() if isinstance(text, str) else text for text in texts], pa.binary())
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"field {name!r}: the text is not valid Unicode: {error}") from error


def _plain(value: Any) -> Any:
    """Return a value with each ``Row`` inside it as a mapping."""
    if isinstance(value, tuple) and hasattr(value, "__fields__"):
        return {name: _plain(inner) for name, inner in zip(value.__fields__, value, strict=True)}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return value
