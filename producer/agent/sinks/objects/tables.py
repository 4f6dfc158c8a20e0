"""Encoding of events as a Parquet file.

Events are collected in chunks of limited size, each of which becomes an Arrow table. Tables of a few megabytes become
a row group. If an event adds or widens a column, the file is encoded again with the final columns. Usually that happens
only to the first file of a table.

``_rest`` of a row is a JSON object of the values that fit no column, by name. A header with the name of a body's field
is in ``%{name}``. A body that is not UTF-8 is in ``body_base64``, and with replaced characters in ``body``.
"""

from __future__ import annotations

import io
import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from ....wire.json_object import json_text
from ...events.batch import EventBatch
from .columns import BODY, HEADERS, REST, ColumnRules, Columns
from .kinds import UNFIT, arrow_type, fields_of, fitted, kind_of

#: Limits of a chunk: bytes of text, events, and cells.
_CHUNK_BYTES, _CHUNK_EVENTS, _CHUNK_CELLS = 1 << 20, 4096, 1 << 20
#: Bytes in memory at which a row group is written.
_GROUP_BYTES = 16 << 20
#: Maximum bytes of memory for the chunk and the row group of a file.
BESIDE = 96 << 20
#: Python types whose values are those of an Arrow column.
_NATIVE: Mapping[str, set[type]] = {"bool": {bool}, "int64": {int}, "double": {float}, "string": {str}}


def parquet_file(
    batches: Sequence[EventBatch], columns: Columns, rules: ColumnRules, compression: str
) -> tuple[bytes, Counter[str]]:
    """Encode events as a Parquet file; return it with counters to add.

    :param columns: the columns of the table, which are extended.
    """
    from pyarrow import parquet

    while True:
        before, file, counts = dict(columns.kinds), io.BytesIO(), Counter[str]()
        with parquet.ParquetWriter(file, _schema(columns), compression=compression) as writer:
            for group in _groups(_chunks(batches, columns, rules), columns, counts):
                writer.write_table(group, row_group_size=group.num_rows)
        if columns.kinds == before:
            return file.getvalue(), counts


def sample_row(event: EventBatch, rules: ColumnRules) -> str:
    """Return the row of an event alone as JSON text."""
    columns = Columns(rules, {})
    rows = [row for chunk in _chunks([event], columns, rules) for row in chunk.table().to_pylist()]
    return "".join([json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows])


def _schema(columns: Columns) -> Any:
    import pyarrow

    return pyarrow.schema([(name, arrow_type(kind)) for name, kind in columns.kinds.items()])


def _groups(chunks: Iterable[_Chunk], columns: Columns, counts: Counter[str]) -> Iterator[Any]:
    """Yield row groups until a column is added or widened; collect the counters of all chunks."""
    import pyarrow

    before, held = dict(columns.kinds), list[Any]()
    for chunk in chunks:
        held.append(chunk.table())
        counts.update(chunk.counts)
        if columns.kinds != before:
            held.clear()
        elif sum(table.nbytes for table in held) >= _GROUP_BYTES:
            yield pyarrow.concat_tables(held)
            held.clear()
    if held:
        yield pyarrow.concat_tables(held)


def _chunks(batches: Iterable[EventBatch], columns: Columns, rules: ColumnRules) -> Iterator[_Chunk]:
    """Yield the rows of events; each chunk has at least one."""
    chunk, size = _Chunk(columns, rules), 0
    for headers, body in chain.from_iterable(batch.events() for batch in batches):
        chunk.add(headers, body)
        size += len(body) + sum(map(len, headers)) + sum(map(len, headers.values()))
        if size >= _CHUNK_BYTES or chunk.count >= min(_CHUNK_EVENTS, _CHUNK_CELLS // len(columns)):
            yield chunk
            chunk, size = _Chunk(columns, rules), 0
    if chunk.count:
        yield chunk


class _Chunk:
    """Some rows of a table.

    :param columns: the columns of the table, which are extended.
    :ivar count: the number of rows.
    :ivar counts: numbers of values in ``_rest`` and of bodies that are not JSON objects.
    """

    def __init__(self, columns: Columns, rules: ColumnRules) -> None:
        self._columns, self._is_json, self._chosen = columns, rules.body_is_json, {*rules.headers}
        self.count = 0
        self.counts = Counter[str]()
        self._column_of: dict[str, str | None] = {}
        #: The values of each column up to the last row that has one, and the name of the first.
        self._cells: dict[str, tuple[str, list[Any]]] = {}
        self._others: list[list[tuple[str, str]]] = []
        self._rest: dict[int, dict[str, Any]] = {}

    def add(self, headers: Mapping[str, str], body: bytes) -> None:
        """Add the row of an event."""
        if self._chosen:
            self._others.append([item for item in headers.items() if item[0] not in self._chosen])
            headers = {name: value for name, value in headers.items() if name in self._chosen}
        row = self._fields(body)
        for name, value in headers.items():
            if name not in row:
                row[name] = value
            elif str(row[name]) != value:
                self._add_rest(self.count, f"%{{{name}}}", value)
        for name, value in row.items():
            self._set(name, value)
        self.count += 1

    def table(self) -> Any:
        """Return the rows as an Arrow table with all columns."""
        import pyarrow

        arrays = {column: self._array(column, *cells) for column, cells in self._cells.items()}
        if self._chosen:
            arrays[HEADERS] = pyarrow.array(self._others, arrow_type("map"))
        if self._rest:
            self._columns.see(REST, "string")
            texts = [_rest_text(self._rest[row]) if row in self._rest else None for row in range(self.count)]
            arrays[REST] = pyarrow.array(texts, pyarrow.string())
        schema = _schema(self._columns)
        missing = {each.name: pyarrow.nulls(self.count, each.type) for each in schema if each.name not in arrays}
        return pyarrow.table({**arrays, **missing}, schema)

    def _fields(self, body: bytes) -> dict[str, Any]:
        """Return the fields of a JSON body; else the body as text in one field."""
        try:
            text = body.decode()
        except UnicodeDecodeError:
            text = body.decode(errors="replace")
            self._add_rest(self.count, "body_base64", b64encode(body).decode())
        if not self._is_json:
            return {BODY: text}
        fields = fields_of(text)
        if fields is None:
            self.counts["EventUnparsedCount"] += 1
            return {BODY: text}
        return fields

    def _set(self, name: str, value: Any) -> None:
        """Set a value of the next row; add it to ``_rest`` if the column does not exist, or already has a value."""
        if name not in self._column_of:
            self._column_of[name] = self._columns.of(name)
        if (column := self._column_of[name]) is None:
            self._add_rest(self.count, name, value)
            return
        _, cells = self._cells.setdefault(column, (name, []))
        if len(cells) > self.count:
            self._add_rest(self.count, name, value)
        else:
            cells += [None] * (self.count - len(cells))
            cells.append(value)

    def _array(self, column: str, name: str, cells: list[Any]) -> Any:
        """Return a column with the values that fit; add the others to ``_rest``."""
        import pyarrow

        cells += [None] * (self.count - len(cells))
        types = {*map(type, cells)} - {type(None)}
        kind = self._columns.see(column, kind_of(cells, types))
        if types <= _NATIVE.get(kind, set()):
            try:
                return pyarrow.array(cells, arrow_type(kind))
            except (UnicodeError, OverflowError):
                pass  # some value does not fit
        return pyarrow.array([self._fitted(n, name, kind, value) for n, value in enumerate(cells)], arrow_type(kind))

    def _fitted(self, number: int, name: str, kind: str, value: Any) -> Any:
        try:
            return fitted(kind, value)
        except UNFIT:
            self._add_rest(number, name, value)
            return None

    def _add_rest(self, number: int, name: str, value: Any) -> None:
        """Add a value to the column ``_rest`` of a row."""
        self._rest.setdefault(number, {})[name] = value
        self.counts["ValueUnfitCount"] += 1


def _rest_text(values: Mapping[str, Any]) -> str:
    text = json_text(values)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(values)
    return text
