"""Records as columns: the rows of the DataFrame that ``producer ship`` writes.

The fields that every record may have are columns of their own, those that a parser found are entries of the map
``fields``. A value that a record does not have is null, and is not sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from ..counts import Counts
from .line import Line
from .record import Record

#: The column of the fields that a parser found: the writer's ``contentsColumn``.
FOUND_FIELDS = "fields"
#: The columns, as Spark declares them.
COLUMNS = (
    "content string, content_base64 string, file_path string, file_offset bigint, line_part int, "
    f"{FOUND_FIELDS} map<string, string>"
)
#: The columns whose values name a record to people.
LABELS = ("file_path", "file_offset")

# A batch is handed on when it has so many records, or so many bytes of lines.
_MOST_RECORDS = 4096
_MOST_BYTES = 1 << 20


class LineColumns:
    """Collects records, and makes batches of columns of them.

    :param counts: grows by the lines that are added.
    """

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._path = ""
        self._clear()

    def _clear(self) -> None:
        self._content: list[str] = []
        self._offsets: list[int] = []
        self._names: list[str] = []
        self._values: list[str] = []
        self._ends = [0]
        # Few records have these: by the record's place.
        self._exact: dict[int, str] = {}
        self._parts: dict[int, int] = {}
        self._runs: list[tuple[str, int]] = []  # each file with the place of its first record
        self._bytes = 0

    def begin(self, path: str) -> None:
        """The records that come now are of this file.

        :param path: as text that can be sent.
        """
        self._path = path
        self._runs.append((path, len(self._content)))

    def add(self, line: Line, record: Record) -> bool:
        """Add the record of a line; whether it is time to :meth:`take`."""
        offset, part, data = line
        content, exact, found, parsed = record
        if exact is not None:
            self._exact[len(self._content)] = exact
        if part:
            self._parts[len(self._content)] = part
        # The pieces of a long line are one line.
        if not parsed and part <= 1:
            self._counts.unparsed += 1
        self._content.append(content)
        self._offsets.append(offset)
        if found:
            self._names.extend(found)
            self._values.extend(found.values())
        self._ends.append(len(self._names))
        self._bytes += len(data)
        return len(self._content) >= _MOST_RECORDS or self._bytes >= _MOST_BYTES

    def take(self) -> Iterator[pa.RecordBatch]:
        """The records since the last time, as columns; nothing if there are none."""
        if not self._content:
            return
        self._count()
        text, rows = pa.string(), len(self._content)
        found = pa.MapArray.from_arrays(
            pa.array(self._ends, pa.int32()), pa.array(self._names, text), pa.array(self._values, text)
        )
        columns = {
            "content": pa.array(self._content, text),
            "content_base64": _sparse(self._exact, rows, text),
            "file_path": self._paths(rows),
            "file_offset": pa.array(self._offsets, pa.int64()),
            "line_part": _sparse(self._parts, rows, pa.int32()),
            FOUND_FIELDS: found,
        }
        self._clear()
        self._runs.append((self._path, 0))
        yield pa.RecordBatch.from_pydict(columns)

    def _count(self) -> None:
        first_pieces = sum(part == 1 for part in self._parts.values())
        self._counts.lines += len(self._content) - len(self._parts) + first_pieces
        self._counts.long_lines += first_pieces
        self._counts.line_bytes += self._bytes

    def _paths(self, rows: int) -> pa.Array:
        ends = [start for _, start in self._runs[1:]] + [rows]
        return pa.concat_arrays(
            [pa.repeat(pa.scalar(path), end - start) for (path, start), end in zip(self._runs, ends, strict=True)]
        )


def _sparse(values: Mapping[int, str | int], rows: int, kind: pa.DataType) -> pa.Array:
    """A column of which few rows have a value."""
    return pa.array([values.get(place) for place in range(rows)], kind) if values else pa.nulls(rows, kind)
