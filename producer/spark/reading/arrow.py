"""Convert LogGroups to Arrow record batches, column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from ...wire.read_columns import Head, ReadGroups
from ...wire.read_fields import as_text, map_array
from ..errors import MalformedValueError
from .number_columns import plain_numbers
from .schema import CONTENTS, CURSOR, FIXED, PACK_ID, SOURCE, TAGS, TIME, TOPIC, arrow_schema
from .values import Parse, parser_of

#: The rows of a record batch, as in Spark.
BATCH_ROWS = 10_000
#: The decompressed bytes of LogGroups after which a record batch is made, even with fewer rows.
BATCH_BYTES = 16 * 1024 * 1024

_MOST_SHOWN = 200


@dataclass(slots=True)
class _Segment:
    """Consecutive logs of one answer.

    :ivar first: the number of the first log in the answer.
    :ivar stop: the number after the last log.
    """

    groups: ReadGroups
    first: int
    stop: int


class Batches:
    """A collector of one shard's LogGroups, which makes record batches of them.

    :param schema: a schema that :func:`~producer.spark.reading.schema.check_schema` accepts.
    :param shard: the shard, for the column ``__cursor__``.
    :param where: the source of the cursors, for error messages; None for the shard.
    :param failfast: True if a value that does not match its column's type is an error; otherwise it is null.
    """

    def __init__(self, schema: StructType, shard: str, *, failfast: bool, where: str | None = None) -> None:
        self._schema = schema
        self._arrow = arrow_schema(schema)
        self._shard = shard
        self._where = f"shard {shard}, cursor" if where is None else where
        self._failfast = failfast
        self._parsers: dict[str, Parse] = {
            field.name: parser_of(field.dataType) for field in schema.fields if field.name not in FIXED
        }
        self._needs_heads = any(name in _OF_GROUP for name in schema.names)
        self._clear()

    def _clear(self) -> None:
        self._segments: list[_Segment] = []
        self._heads: list[tuple[Head, str]] = []  # and the cursor of each LogGroup
        self._sizes: list[int] = []  # logs of each LogGroup
        self._rows = 0
        self._bytes = 0.0

    def add(self, groups: ReadGroups, cursors: Sequence[str], size: int) -> Iterator[Any]:
        """Add LogGroups, and yield full record batches.

        :param cursors: the cursor of each LogGroup.
        :param size: the bytes of all LogGroups together.
        """
        share = size / max(1, len(cursors))
        first = 0
        for index, (logs, cursor) in enumerate(zip(groups.sizes, cursors, strict=True)):
            self._heads.append((groups.head(index) if self._needs_heads else _NO_HEAD, cursor))
            self._add(groups, first, logs)
            first += logs
            self._bytes += share
            if self._rows >= BATCH_ROWS or self._bytes >= BATCH_BYTES:
                yield from self.rest()

    def _add(self, groups: ReadGroups, first: int, logs: int) -> None:
        self._sizes.append(logs)
        self._rows += logs
        last = self._segments[-1] if self._segments else None
        if last is not None and last.groups is groups and last.stop == first:
            last.stop += logs
        else:
            self._segments.append(_Segment(groups, first, first + logs))

    def rest(self) -> Iterator[Any]:
        """Yield the remaining rows as record batches."""
        if self._rows:
            batch = pa.RecordBatch.from_arrays(self._columns(), schema=self._arrow)
            for start in range(0, self._rows, BATCH_ROWS):
                yield batch.slice(start, BATCH_ROWS)
        self._clear()

    def _columns(self) -> list[Any]:
        of_groups = self._of_groups()
        own = iter(self._named())
        columns = []
        for field, arrow in zip(self._schema.fields, self._arrow, strict=True):
            if field.name == TIME:
                times = _joined([part.groups.times(part.first, part.stop) for part in self._segments])
                columns.append(times.cast(arrow.type))
            elif field.name == CONTENTS:
                parts = [part.groups.contents(part.first, part.stop, arrow.type) for part in self._segments]
                columns.append(_joined(parts))
            elif field.name in FIXED:
                columns.append(of_groups(_OF_GROUP[field.name], arrow.type))
            else:
                columns.append(self._own(field, arrow.type, next(own)))
        return columns

    def _named(self) -> list[Any]:
        """Return the fields of the user's columns, as bytes."""
        names = list(self._parsers)
        if not names:
            return []
        found = [part.groups.named(part.first, part.stop, names) for part in self._segments]
        return [_joined(parts) for parts in zip(*found, strict=True)]

    def _of_groups(self) -> Callable[[Callable[[Head, str, str], Any], Any], Any]:
        """Return a function that makes a column of a value that all logs of a LogGroup share."""
        group_of = pa.array(np.repeat(np.arange(len(self._heads)), self._sizes))

        def column(value_of: Callable[[Head, str, str], Any], kind: Any) -> Any:
            values = [value_of(head, self._shard, cursor) for head, cursor in self._heads]
            return (map_array(values, kind) if pa.types.is_map(kind) else pa.array(values, kind)).take(group_of)

        return column

    def _own(self, field: StructField, kind: Any, found: Any) -> Any:
        """Return a column of the user's schema, from the field of that name."""
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
                f"{self._place(row)}: the field {field.name} is {shown}, which is not of type "
                f"{field.dataType.simpleString()}; mode=PERMISSIVE would read null"
            ) from error

    def _place(self, row: int) -> str:
        ends = np.cumsum(self._sizes)
        group = int(np.searchsorted(ends, row, side="right"))
        log = row - int(ends[group]) + self._sizes[group]
        return f"{self._where} {self._heads[group][1]}, log {log} of that LogGroup"


def _joined(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


def _tags(head: Head, _shard: str, _cursor: str) -> dict[str, str]:
    return {_text(key): _text(value) for key, value in head.tags if key != PACK_ID.encode()}


def _pack_id(head: Head, _shard: str, _cursor: str) -> str | None:
    return next((_text(value) for key, value in head.tags if key == PACK_ID.encode()), None)


_NO_HEAD = Head(b"", b"", ())

# The columns with one value for all logs of a LogGroup.
_OF_GROUP: dict[str, Callable[[Head, str, str], Any]] = {
    TOPIC: lambda head, _shard, _cursor: _text(head.topic),
    SOURCE: lambda head, _shard, _cursor: _text(head.source),
    TAGS: _tags,
    PACK_ID: _pack_id,
    CURSOR: lambda _head, shard, cursor: f"{shard}/{cursor}",
}
