"""The output of commands: rows as a table, JSON, JSON lines or CSV.

Logs and server messages may contain anything, so terminal control characters are shown with backslashes. Programs get
the values unchanged: in JSON, control characters are escaped, which does not change the value.
"""

from __future__ import annotations

import codecs
import csv
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any

from ..text.printable import message, one_line, shown
from .times import is_part_of_a_second
from .times import shown as time_shown

#: The limit of a value's characters in a table.
_WIDEST = 100
#: Terminal controls that JSON need not escape: those above ASCII, and changes of text direction.
_OBEYED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
#: The nanoseconds of a log within the second of its time.
_PART = "__time_ns_part__"
_BOLD, _DIM, _RED, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[0m"

Row = Mapping[str, Any]


def writer(kind: str | None, columns: Sequence[str] = (), *, stream: bool = False) -> Writer:
    """Return a writer to the standard output.

    :param kind: one of :data:`~.arguments.target.FORMATS`; None for a table on a terminal, and JSON lines elsewhere.
    :param columns: the first columns; all others follow.
    :param stream: True if rows arrive for a long time: none is kept.
    """
    table = _Lines if stream else _Table
    kinds: dict[str, type[Writer]] = {"table": table, "json": _Json, "jsonl": Writer, "csv": _Csv}
    return kinds[form_of(kind)](columns)


def print_rows(kind: str | None, rows: Iterable[Row], columns: Sequence[str] = ()) -> None:
    """Print all rows; the other parameters are those of :func:`writer`."""
    printed = writer(kind, columns)
    printed.write(rows)
    printed.close()


def form_of(kind: str | None) -> str:
    """Return the given format, or the default of the standard output."""
    return kind or ("table" if sys.stdout.isatty() else "jsonl")


def has_colours(stream: IO[str]) -> bool:
    """Return True for a terminal, unless ``NO_COLOR`` is set (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str, stream: IO[str]) -> str:
    """Return the text, with a style where the stream has colours."""
    return f"{style}{text}{_PLAIN}" if has_colours(stream) else text


def say(*lines: str, flush: bool = False) -> None:
    """Print lines on the standard output, with line ends inside them escaped."""
    for line in lines:
        print(shown(line), flush=flush)


def tell(text: object) -> None:
    """Print a message on the standard error."""
    print(message(str(text)), file=sys.stderr, flush=True)


def tell_error(command: str, error: object) -> None:
    """Print an error on the standard error, in red on a terminal."""
    print(f"producer {command}: {styled(message(str(error)), _RED, sys.stderr)}", file=sys.stderr)


def plain(value: object) -> str:
    """Return a value in one line, with terminal control characters escaped."""
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _json_of(row: Row, out: IO[str]) -> str:
    """Return a row as JSON, in ASCII unless the output is UTF-8: Python would write ``\\xfc``, which is not JSON."""
    text = json.dumps(row, ensure_ascii=not _is_utf8(out))
    return _OBEYED.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)


def _is_utf8(out: IO[str]) -> bool:
    encoding = getattr(out, "encoding", None)
    return encoding is None or codecs.lookup(encoding).name == "utf-8"


def _cell(value: object) -> str:
    text = plain("" if value is None else value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _with_time(row: Row) -> Row:
    """Return the row with a readable time that includes its fraction of a second."""
    if "__time__" not in row:
        return row
    part = str(row.get(_PART, ""))
    rest = {name: value for name, value in row.items() if name != _PART or not is_part_of_a_second(part)}
    return {**rest, "__time__": time_shown(str(row["__time__"]), part)}


def _names(rows: Iterable[Row], first: Sequence[str]) -> list[str]:
    """Return all columns: the given ones, then the rows' own, then those that the service adds."""
    found = dict.fromkeys(name for row in rows for name in row)
    own = [name for name in found if not name.startswith("__") and name not in first]
    added = [name for name in found if name.startswith("__") and name not in first]
    return [*(name for name in first if name in found), *own, *added]


class Writer:
    """A writer of each row as a line of JSON.

    :param columns: the first columns of the other formats.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._out, self._columns = sys.stdout, columns

    def write(self, rows: Iterable[Row]) -> None:
        """Print the rows, or keep them for the end."""
        for row in rows:
            self._out.write(f"{self._line(row)}\n")
        self._out.flush()

    def _line(self, row: Row) -> str:
        return _json_of(row, self._out)

    def close(self) -> None:
        """Print the kept rows."""
        self._out.flush()


class _Table(Writer):
    def __init__(self, columns: Sequence[str]) -> None:
        super().__init__(columns)
        self._rows: list[Row] = []

    def write(self, rows: Iterable[Row]) -> None:
        self._rows += map(_with_time, rows)

    def close(self) -> None:
        rows, self._rows = self._rows, []
        names = [name for name in _names(rows, self._columns) if any(row.get(name, "") != "" for row in rows)]
        if not names:
            return
        cells = [[_cell(row.get(name, "")) for name in names] for row in rows]
        widths = [max(map(len, column)) for column in zip([plain(name) for name in names], *cells, strict=True)]
        head = "  ".join(plain(name).ljust(width) for name, width in zip(names, widths, strict=True))
        print(styled(head.rstrip(), _BOLD, self._out), file=self._out)
        for line in cells:
            print(
                "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip(), file=self._out
            )
        self._out.flush()


class _Lines(Writer):
    """A writer of one line for each log, with its time and its fields."""

    def _line(self, row: Row) -> str:
        row = _with_time(row)
        time = styled(plain(row.get("__time__", "")), _DIM, self._out)
        own = (f"{plain(name)}={plain(value)}" for name, value in row.items() if not name.startswith("__"))
        return " ".join([time, *own])


class _Json(Writer):
    _before = "[\n"

    def write(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._out.write(self._before + _json_of(row, self._out))
            self._before = ",\n"

    def close(self) -> None:
        self._out.write("[]\n" if self._before == _Json._before else "\n]\n")
        super().close()


class _Csv(Writer):
    """A writer of CSV with the columns of the first rows; later columns are left out and reported."""

    def __init__(self, columns: Sequence[str]) -> None:
        super().__init__(columns)
        self._names: list[str] = []
        self._left_out = set[str]()
        self._writer = csv.writer(self._out, lineterminator="\n")
        self._shown: Callable[[object], object] = plain if self._out.isatty() else lambda value: value

    def write(self, rows: Iterable[Row]) -> None:
        rows = list(rows)
        if rows and not self._names:
            self._names = _names(rows, self._columns)
            self._writer.writerow(map(self._shown, self._names))
        for row in rows:
            self._left_out |= row.keys() - set(self._names)
            self._writer.writerow([self._shown(row.get(name, "")) for name in self._names])
        self._out.flush()

    def close(self) -> None:
        if self._left_out:
            names = ", ".join(map(plain, sorted(self._left_out)))
            tell(f"warning: left out columns that are not in the first rows: {names}; --output jsonl includes them")
        super().close()
