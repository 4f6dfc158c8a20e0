"""ColumnarEncoder: record batches of one schema become records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ...model.errors import InvalidArgumentError
from . import time_fields
from .bounds import check_parts
from .columns import columns_of
from .estimate import BEFORE_ROW
from .fields import Entries, Field
from .picking import Grouping, Names, group
from .rows import EncodedRows, encode_rows
from .time_fields import Times
from .values import Numbers, UnsendableError


class ColumnarEncoder:
    """Encodes batches of one schema; used by any number of threads.

    :param schema: of the batches.
    :param time_column: holds the time of each log: timestamps with a zone, or seconds since the epoch. Null is the
        time of sending.
    :param topic_column: holds the topic of each log. Null is that of the stream; likewise the next two.
    :param source_column: holds the source of each log.
    :param shard_hash_column: holds the shard hash of each log.
    :param contents_column: a map whose entries are fields of the log, behind those of the other columns.
    :raises InvalidArgumentError: a column that is not there, or whose type is not allowed; a type that cannot be sent.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        time_column: str | None = None,
        topic_column: str | None = None,
        source_column: str | None = None,
        shard_hash_column: str | None = None,
        contents_column: str | None = None,
    ) -> None:
        self.schema = schema
        options = {
            "time_column": time_column,
            "topic_column": topic_column,
            "source_column": source_column,
            "shard_hash_column": shard_hash_column,
            "contents_column": contents_column,
        }
        self._columns = columns_of(schema, options)

    def check(self, batch: pa.RecordBatch) -> None:
        """Look whether the data lie where they say, once, before a batch or slices of it are encoded.

        :raises InvalidArgumentError: they do not.
        """
        _validate(batch)
        checks = [(position, column.check) for position, column in self._columns.fields]
        checks += [(position, check_parts) for position in self._columns.picking if position is not None]
        for position, check in checks:
            try:
                check(batch.column(position))
            except UnsendableError as error:
                name = batch.schema.field(position).name
                raise InvalidArgumentError(f"column {name!r}: at {error.position}: {error.reason}") from error

    def group(self, batch: pa.RecordBatch) -> Grouping:
        """The rows of a batch in groups that go to one stream each."""
        return group(batch, self._columns.picking)

    def streams(self, batch: pa.RecordBatch) -> Iterator[tuple[Names, pa.RecordBatch, range | Numbers]]:
        """For each stream its names, its rows in their order, and where these stood in the batch."""
        return self.group(batch).batches(batch)

    def estimate(self, batch: pa.RecordBatch) -> int:
        """About how many bytes :meth:`encode` will make of a batch: for ordinary ones no fewer. Cheap."""
        size = int(batch.num_rows) * BEFORE_ROW
        for position, column in self._columns.fields:
            size += column.estimate(batch.column(position))
        return size

    def encode(self, batch: pa.RecordBatch, now: int, rows: Sequence[int] | Numbers | None = None) -> EncodedRows:
        """The records of a batch.

        :param now: seconds since the epoch, for logs without a time of their own.
        :param rows: what errors call the rows; None counts from 0.
        :raises InvalidArgumentError: a value that cannot become text, or a time out of range: the first of its
            column, with its row; a batch of another schema.
        """
        if not batch.schema.equals(self.schema):
            raise InvalidArgumentError(f"a batch has another schema than the first: {batch.schema.to_string()}")
        _validate(batch)
        which = range(batch.num_rows) if rows is None else rows
        try:
            return encode_rows(self._times(batch, now, which), self._fields(batch, which), batch.num_rows)
        except UnsendableError as error:
            raise InvalidArgumentError(f"row {which[error.position]}: {error.reason}") from error

    def _fields(self, batch: pa.RecordBatch, rows: Sequence[int] | Numbers) -> list[Field | Entries]:
        fields: list[Field | Entries] = []
        for position, column in self._columns.fields:
            values = batch.column(position)
            try:
                fields += filter(None, [column.fields(values)])
            except UnsendableError as error:
                name = batch.schema.field(position).name
                raise InvalidArgumentError(f"row {rows[error.position]}: field {name!r}: {error.reason}") from error
        return fields

    def _times(self, batch: pa.RecordBatch, now: int, rows: Sequence[int] | Numbers) -> Times:
        position = self._columns.time
        if position is None:
            return Times(now, None)
        try:
            return time_fields.of_column(batch.column(position), now)
        except UnsendableError as error:
            name = batch.schema.field(position).name
            raise InvalidArgumentError(f"row {rows[error.position]}: time_column {name!r}: {error.reason}") from error


def _validate(batch: pa.RecordBatch) -> None:
    try:
        batch.validate()
    except pa.ArrowException as error:
        raise InvalidArgumentError(f"the Arrow data contradict themselves: {error}") from error
