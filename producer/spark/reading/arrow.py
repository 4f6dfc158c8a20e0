"""From LogGroups to Arrow record batches, column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from ..errors import MalformedValueError
from .fields import Fields, as_text, map_array
from .number_columns import plain_numbers
from .schema import CONTENTS, CURSOR, FIXED, PACK_ID, SOURCE, TAGS, TIME, TOPIC, arrow_schema
from .values import Parse, parser_of

#: Rows of a record batch, as Spark itself makes them.
BATCH_ROWS = 10_000
#: Decompressed bytes of LogGroups after which a record batch is made even if it has fewer rows.
BATCH_BYTES = 16 * 1024 * 1024

_MOST_SHOWN = 200


class Batches:
    """Collects LogGroups of one shard, and makes record batches of them.

    :param schema: one that :func:`~producer.spark.reading.schema.check_schema` passed.
    :param shard: which shard, for the column ``__cursor__`` and for error messages.
    :param failfast: whether a value that is not of its column's type is an error; else it is null.
    """

    def __init__(self, schema: StructType, shard: str, *, failfast: bool) -> None:
        self._schema = schema
        self._arrow = arrow_schema(schema)
        self._shard = shard
        self._failfast = failfast
        self._parsers: dict[str, Parse] = {
            field.name: parser_of(field.dataType) for field in schema.fields if field.name not in FIXED
        }
        self._needs_fields = CONTENTS in schema.names or bool(self._parsers)
        self._clear()

    def _clear(self) -> None:
        self._groups: list[tuple[Any, str]] = []
        self._sizes: list[int] = []  # logs of each group
        self._times: list[int] = []  # microseconds
        self._framed: list[bytes] = []
        self._counts: list[int] = []  # fields of each log
        self._bytes = 0.0

    def add(self, groups: Sequence[Any], cursors: Sequence[str], size: int) -> Iterator[Any]:
        """Take LogGroups in, and hand out the record batches that are full.

        :param cursors: of each LogGroup.
        :param size: bytes of all of them.
        """
        share = size / max(1, len(groups))
        for group, cursor in zip(groups, cursors, strict=True):
            self._add(group, cursor)
            self._bytes += share
            if len(self._times) >= BATCH_ROWS or self._bytes >= BATCH_BYTES:
                yield from self.rest()

    def _add(self, group: Any, cursor: str) -> None:
        logs = group.Logs
        self._groups.append((group, cursor))
        self._sizes.append(len(logs))
        times, framed, counts = self._times, self._framed, self._counts
        needs_fields = self._needs_fields
        for log in logs:
            times.append(log.Time * 1_000_000 + log.Time_ns // 1000)
            if needs_fields:
                contents = log.Contents
                framed.extend(contents)
                counts.append(len(contents))

    def rest(self) -> Iterator[Any]:
        """Hand out what is not in a record batch yet."""
        rows = len(self._times)
        if rows:
            batch = pa.RecordBatch.from_arrays(self._columns(), schema=self._arrow)
            for start in range(0, rows, BATCH_ROWS):
                yield batch.slice(start, BATCH_ROWS)
        self._clear()

    def _columns(self) -> list[Any]:
        group_of = pa.array(np.repeat(np.arange(len(self._groups)), self._sizes))
        fields = Fields(self._framed, self._counts)
        columns = []
        for field, arrow in zip(self._schema.fields, self._arrow, strict=True):
            if field.name == TIME:
                columns.append(pa.array(self._times, pa.int64()).cast(arrow.type))
            elif field.name == CONTENTS:
                columns.append(fields.as_map(arrow.type))
            elif field.name in FIXED:
                columns.append(self._of_groups(_OF_GROUP[field.name], arrow.type).take(group_of))
            else:
                columns.append(self._own(field, arrow.type, fields.named(field.name)))
        return columns

    def _of_groups(self, value_of: Callable[[Any, str, str], Any], kind: Any) -> Any:
        values = [value_of(group, self._shard, cursor) for group, cursor in self._groups]
        return map_array(values, kind) if pa.types.is_map(kind) else pa.array(values, kind)

    def _own(self, field: StructField, kind: Any, found: Any) -> Any:
        """A column of the user's, from the field of that name."""
        if isinstance(field.dataType, BinaryType):
            column = found
        elif isinstance(field.dataType, StringType):
            column = as_text(found)
        else:
            texts = as_text(found)
            column = plain_numbers(texts, kind)
            if column is None:
                column = pa.array(self._parsed(field, texts.to_numpy(zero_copy_only=False).tolist()), kind)
        if not field.nullable and column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise MalformedValueError(f"{self._place(row)}: no value for the column {field.name}, which is NOT NULL")
        return column

    def _parsed(self, field: StructField, texts: list[str | None]) -> list[Any]:
        parse = self._parsers[field.name]
        try:
            return [None if text is None else parse(text) for text in texts]
        except ValueError:
            return [None if text is None else self._one(field, parse, row, text) for row, text in enumerate(texts)]

    def _one(self, field: StructField, parse: Parse, row: int, text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            if not self._failfast:
                return None
            shown = repr(text[:_MOST_SHOWN]) + ("…" if len(text) > _MOST_SHOWN else "")
            raise MalformedValueError(
                f"{self._place(row)}: the field {field.name} is {shown}, which is no "
                f"{field.dataType.simpleString()}; with mode=PERMISSIVE it would be null"
            ) from error

    def _place(self, row: int) -> str:
        ends = np.cumsum(self._sizes)
        group = int(np.searchsorted(ends, row, side="right"))
        log = row - int(ends[group]) + self._sizes[group]
        return f"shard {self._shard}, cursor {self._groups[group][1]}, log {log} of that LogGroup"


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


def _tags(group: Any, _shard: str, _cursor: str) -> dict[str, str]:
    return {_text(tag.Key): _text(tag.Value) for tag in group.LogTags if tag.Key != PACK_ID.encode()}


def _pack_id(group: Any, _shard: str, _cursor: str) -> str | None:
    return next((_text(tag.Value) for tag in group.LogTags if tag.Key == PACK_ID.encode()), None)


# The columns that are the same for all logs of a LogGroup.
_OF_GROUP: dict[str, Callable[[Any, str, str], Any]] = {
    TOPIC: lambda group, _shard, _cursor: _text(group.Topic),
    SOURCE: lambda group, _shard, _cursor: _text(group.Source),
    TAGS: _tags,
    PACK_ID: _pack_id,
    CURSOR: lambda _group, shard, cursor: f"{shard}/{cursor}",
}
