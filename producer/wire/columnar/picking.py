"""Groups rows by the columns that select the stream, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .values import Numbers


class Names(NamedTuple):
    """The values that select a stream; None for the stream's own value.

    :ivar topic: the topic.
    :ivar source: the source.
    :ivar shard_hash: the shard hash.
    """

    topic: str | None = None
    source: str | None = None
    shard_hash: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """The rows of a batch, group by group.

    :ivar rows: their positions in the batch; a ``range`` if they are already in this order.
    :ivar groups: the names of each group, and its end in ``rows``.
    """

    rows: range | Numbers
    groups: Sequence[tuple[Names, int]]

    def batches(self, batch: pa.RecordBatch) -> Iterator[tuple[Names, pa.RecordBatch, range | Numbers]]:
        """Yield for each group its names, a batch of its rows, and their positions; rows in order are not copied."""
        ordered = batch if isinstance(self.rows, range) else _taken(batch, self.rows)
        start = 0
        for names, stop in self.groups:
            yield names, ordered.slice(start, stop - start), self.rows[start:stop]
            start = stop


def _taken(batch: pa.RecordBatch, rows: Numbers) -> pa.RecordBatch:
    try:
        return batch.take(pa.array(rows))
    except pa.ArrowNotImplementedError:  # pyarrow cannot take from views.
        return pa.concat_batches([batch.slice(row, 1) for row in rows.tolist()])


def group(batch: pa.RecordBatch, columns: Sequence[int | None]) -> Grouping:
    """Group the rows by the values of some columns.

    :param columns: the positions of the columns of topic, source and shard hash; None for a missing one.
    """
    rows = batch.num_rows
    given = [None if column is None else _texts(batch.column(column)) for column in columns]
    if not any(given) or rows == 0:
        return Grouping(range(rows), [(Names(), rows)] if rows else [])
    groups, first = _groups([codes for codes, _ in filter(None, given)], rows)
    names = [_names(given, row) for row in first]
    ends = zip(names, np.cumsum(np.bincount(groups)).tolist(), strict=True)
    if (groups[1:] >= groups[:-1]).all():
        return Grouping(range(rows), list(ends))
    # NumPy sorts 16-bit numbers by radix, which is faster.
    order = np.argsort(groups.astype(np.uint16) if len(names) < 1 << 16 else groups, kind="stable")
    return Grouping(order, list(ends))


_Coded = tuple[Numbers, list[str | None]]


def _texts(column: pa.Array) -> _Coded:
    """Return a code for each row, and the text of each code."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    coded = pc.dictionary_encode(column, null_encoding="encode")
    return coded.indices.to_numpy(), coded.dictionary.to_pylist()


def _groups(codes: Sequence[Numbers], rows: int) -> tuple[Numbers, list[int]]:
    """Return the group number of each row, in the order of first rows, and these first rows."""
    together = np.zeros(rows, np.int64)
    for numbers in codes:
        combined = pa.array(together * (int(numbers.max()) + 1) + numbers).dictionary_encode()
        together = combined.indices.to_numpy().astype(np.int64)
    _, first = np.unique(together, return_index=True)
    return together, first.tolist()


def _names(given: Sequence[_Coded | None], row: int) -> Names:
    return Names(*(None if coded is None else coded[1][coded[0][row]] for coded in given))
