"""ColumnarEncoder: encodes record batches of one schema as records."""

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
    """Encodes batches of one schema; thread-safe.

    :param schema: the schema of the batches.
    :param time_column: the column with the time of each log: timestamps with a zone, or seconds since the epoch. Null
        is the time of sending.
    :param topic_column: the column with the topic of each log; null is the stream's topic.
    :param source_column: the column with the source of each log; null is the stream's source.
    :param shard_hash_column: the column with the shard hash of each log; null is the stream's shard hash.
    :param contents_column: a map whose entries are fields of the log, after those of the other columns.
    :raises InvalidArgumentError: a column does not exist, or its type is not allowed, or cannot be sent.
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
        """Check once that the data of a batch is within its buffers, before the batch or slices of it are encoded.

        :raises InvalidArgumentError: some of the data is outside.
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
        """Group the rows of a batch by stream."""
        return group(batch, self._columns.picking)

    def streams(self, batch: pa.RecordBatch) -> Iterator[tuple[Names, pa.RecordBatch, range | Numbers]]:
        """Yield for each stream its names, its rows in order, and their positions in the batch."""
        return self.group(batch).batches(batch)

    def estimate(self, batch: pa.RecordBatch) -> int:
        """Return an upper estimate of the size of an encoded batch, in bytes; rare batches exceed it."""
        size = int(batch.num_rows) * BEFORE_ROW
        for position, column in self._columns.fields:
            size += column.estimate(batch.column(position))
        return size

    def encode(self, batch: pa.RecordBatch, now: int, rows: Sequence[int] | Numbers | None = None) -> EncodedRows:
        """Encode a batch as records.

        :param now: the time of logs without their own time, seconds since the epoch.
        :param rows: the row numbers to use in errors; None to count from 0.
        :raises InvalidArgumentError: a value has no text, a time is out of range, or the batch has another schema. The
            error names the first row at fault of its column.
        """
        if not batch.schema.equals(self.schema):
            raise InvalidArgumentError(
                f"the schema of a batch differs from that of the first: {batch.schema.to_string()}"
            )
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
        raise InvalidArgumentError(f"the Arrow data is inconsistent: {error}") from error
