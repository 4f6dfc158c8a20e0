"""Builds columns for ``Stream.send_arrow`` from blocks of lines, if possible without a Python object per line.

The line and its offset are columns, as is each field that a parser finds in most lines. Fields of single lines of
another kind are entries of the map ``fields``. A value that a line does not have is null, and is not sent.

The file has more than 400 lines because it holds a short function for each parser.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...runtime.compiled import either
from ...wire.arrow_text import arrow_buffers, line_column
from ...wire.captures import Steps, steps_of
from ...wire.json_object import json_text, parse_json
from ...wire.logfmt import is_surely_logfmt
from ...wire.patterns import Pattern
from ...wire.splitters import split_access, split_delimited, split_logfmt, split_objects, split_syslog
from ...wire.syslog import facility_and_severity, parse_syslog
from ...wire.text_column import SplitLines, TextColumn
from ..figures import Figures
from ..line_times import TIME_FIELDS, LineTimes
from .line import Block
from .logs import LogBlock
from .names import is_plain, sendable, sendable_fields
from .parsers import Parser, Values, compiled_pattern, make_parser
from .parsers.apache import parse_error_log
from .parsers.auto import parse_dated, parse_pairs

#: The column for fields of single lines: the option ``contents_column``.
FOUND_FIELDS = "fields"
#: The column for times of the lines: the option ``time_column``. No field has this name.
LINE_TIMES = "__time__"

# Minimum share of lines of a block that compiled code must parse; the others are far slower.
_MOSTLY = 0.75
# The beginning of a logfmt line.
_KEYED = r"^[\t-\r ]*[A-Za-z_@][\w.@-]*="
# Maximum number of values per byte of all lines, above which lines are too short: n values need n - 1 delimiters.
_MOST_VALUES_A_BYTE = 4

_line_column = either("producer.wire._arrow_text", "line_column", line_column)
_arrow_buffers = either("producer.wire._arrow_text", "arrow_buffers", arrow_buffers)

_Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"


@dataclass(slots=True)
class Found:
    """The fields that a parser found in some lines.

    :ivar parsed: a mask of the lines that the parser recognised.
    :ivar columns: the fields that most of them have.
    :ivar fields: the fields of other lines, by row.
    """

    parsed: _Mask
    columns: dict[str, pa.Array] = field(default_factory=dict)
    fields: dict[int, dict[str, str]] = field(default_factory=dict)


#: A compiled function that splits lines of keys and values.
KeyedSplit: TypeAlias = Callable[[bytes | memoryview, bytes | memoryview], SplitLines]
#: A function from the column of lines to their fields.
ColumnParser: TypeAlias = Callable[[pa.StringArray], Found]


class BlockColumns:
    """Builds record batches from blocks.

    :param parser: a name of :data:`~producer.ship.lines.parsers.PARSER_NAMES`.
    :param pattern: the pattern of the parser ``regex``.
    :param offset: True to add the offset of its line to each record.
    :param times: the form of the times in the lines; None to add no times.
    :param values: the columns and the delimiter of the parser ``delimited``.
    """

    def __init__(
        self,
        parser: str,
        pattern: str | None,
        *,
        offset: bool,
        times: LineTimes | None = None,
        values: Values | None = None,
    ) -> None:
        self._parse = _column_parser(parser, pattern, values or Values())
        self._offset = offset
        self._times = times

    def batch(self, block: Block, figures: Figures) -> pa.RecordBatch:
        """Return the records of a block of UTF-8.

        :param figures: the counters to add the lines to that the parser did not recognise.
        """
        lines, starts = _logs(block) if isinstance(block, LogBlock) else _lines(block)
        found = self._parse(lines)
        columns: dict[str, pa.Array] = {"content": lines}
        if self._offset:
            columns["__file_offset__"] = pa.array(starts + block.offset)
        columns.update(found.columns)
        if found.fields:
            columns[FOUND_FIELDS] = _map(found.fields, len(lines))
        if self._times is not None:
            columns[LINE_TIMES] = _line_times(found, len(lines), self._times)
        figures.unparsed += int(len(lines) - np.count_nonzero(found.parsed))
        return pa.RecordBatch.from_pydict(columns)


def _logs(block: LogBlock) -> tuple[pa.StringArray, np.ndarray[Any, np.dtype[np.int64]]]:
    """Return the logs without their last line end, and the start of each in the block."""
    data = block.data
    # A line end of one or two bytes follows each log, except for the last one of a file.
    kept, gaps = np.ones(len(data), bool), np.append(block.starts[1:], len(data)) - block.ends
    kept[block.ends[gaps > 0]] = False
    kept[block.ends[gaps > 1] + 1] = False
    text = np.frombuffer(data, np.uint8)[kept]
    sizes = (block.ends - block.starts).astype(np.uint32)
    return _arrow(TextColumn(sizes.tobytes(), text.tobytes())), block.starts


def _lines(block: Block) -> tuple[pa.StringArray, np.ndarray[Any, np.dtype[np.int64]]]:
    """Return the lines without line ends, and the start of each in the block."""
    starts, lines = _line_column(block.data, block.count)
    return _arrow(lines), np.frombuffer(starts, np.int64)


def _map(fields: Mapping[int, Mapping[str, str]], rows: int) -> pa.MapArray:
    """Return the fields of single lines as a map column; other rows are empty."""
    sizes = np.zeros(rows + 1, np.int32)
    names: list[str] = []
    values: list[str] = []
    for row in sorted(fields):
        sizes[row + 1] = len(fields[row])
        names.extend(fields[row])
        values.extend(fields[row].values())
    ends = pa.array(np.cumsum(sizes, dtype=np.int32))
    return pa.MapArray.from_arrays(ends, pa.array(names, pa.string()), pa.array(values, pa.string()))


def _line_times(found: Found, rows: int, how: LineTimes) -> pa.Array:
    """Return the times of the lines, null for lines without one."""
    kind = pa.timestamp("ns", "UTC")
    times, moment_of = pa.nulls(rows, kind), how.reader()
    for name in reversed(TIME_FIELDS):
        column = found.columns.get(name)
        if column is not None:
            texts = column.dictionary_encode()
            parsed = pa.array([moment_of(text) for text in texts.dictionary.to_pylist()], kind).take(texts.indices)
            times = pc.if_else(column.is_valid(), parsed, times)
    if found.fields:
        moments = times.cast(pa.int64()).to_pylist()
        for row, fields in found.fields.items():
            moments[row] = how.of_fields(fields)
        times = pa.array(moments, kind)
    return times


def _column_parser(name: str, pattern: str | None, values: Values) -> ColumnParser:
    parse = make_parser(name, pattern, values)
    if name == "regex" and pattern is not None:
        return _regex(compiled_pattern(pattern), parse)
    columns: dict[str, ColumnParser] = {
        "text": lambda lines: Found(np.ones(len(lines), bool)),
        "apache": lambda lines: _with_others(_access(lines, b"["), lines, parse),
        "auto": _any_format,
        "json": _json_objects,
        "syslog": lambda lines: _syslog(lines, parse),
        "logfmt": lambda lines: _logfmt(lines, parse),
        "delimited": lambda lines: _delimited(lines, values, parse),
    }
    return columns[name]


def _line_by_line(lines: pa.StringArray, parse: Parser) -> Found:
    """Parse all lines one by one."""
    found = Found(np.zeros(len(lines), bool))
    _add_single(found, range(len(lines)), lines.to_pylist(), parse)
    return found


def _add_single(found: Found, rows: Sequence[int], texts: Sequence[str], parse: Parser) -> None:
    """Parse some lines one by one, and add their fields."""
    for row, text in zip(rows, texts, strict=True):
        parsed = parse(text)
        fields = None if parsed is None else sendable_fields(parsed)
        if fields is not None:
            found.parsed[row] = True
            if fields:
                found.fields[row] = fields


def _access(lines: pa.StringArray, others: bytes) -> Found:
    """Split access logs into columns, without lines that begin with one of the characters in ``others``."""
    return _found(split_access(*_buffers(lines), others))


def _any_format(lines: pa.StringArray) -> Found:
    """Parse each line as ``parse_auto`` does; its first character selects the parser if it is not an access log."""
    found = _access(lines, b"{[<")
    rest = np.flatnonzero(~found.parsed)
    if not len(rest):
        return found
    _, offsets, data = lines.buffers()
    begins = np.frombuffer(offsets, np.int32)[: len(lines)][rest]
    # An empty line at the end has no first character; the padding stands in for it.
    characters = np.append(np.frombuffer(data, np.uint8), np.zeros(5, np.uint8))
    firsts = characters[begins]
    objects, errors = firsts == ord("{"), firsts == ord("[")
    # In a shorter line this is a character of the next one, but the parser of single lines decides.
    dated = (characters[begins + 4] == ord("/")) & ~objects & ~errors & (firsts != ord("<"))
    for rows, parse in (
        (rest[objects], _json_objects),
        (rest[errors], lambda some: _line_by_line(some, parse_error_log)),
        (rest[dated], lambda some: _line_by_line(some, parse_dated)),
        (rest[~objects & ~errors & ~dated], lambda some: _syslog(some, parse_syslog)),
    ):
        if len(rows):
            _add_some(found, rows, parse(_some(lines, rows)))
    rows = rest[~objects & ~errors & (firsts != ord("<"))]
    rows = rows[~found.parsed[rows]]
    rows = rows[pc.match_substring_regex(_some(lines, rows), _KEYED).to_numpy(zero_copy_only=False)]
    rows = rows[[is_surely_logfmt(line) for line in _some(lines, rows).to_pylist()]] if len(rows) else rows
    if len(rows):
        _add_some(found, rows, _logfmt(_some(lines, rows), parse_pairs))
    return found


def _some(lines: pa.StringArray, rows: np.ndarray[Any, np.dtype[np.int64]]) -> pa.StringArray:
    return lines if len(rows) == len(lines) else lines.take(pa.array(rows))


def _add_some(found: Found, rows: np.ndarray[Any, np.dtype[np.int64]], some: Found) -> None:
    """Add the fields of some lines that were not recognised before."""
    found.parsed[rows] = some.parsed
    found.fields |= {int(rows[row]): fields for row, fields in some.fields.items()}
    if len(rows) == len(found.parsed):
        found.columns = some.columns
        return
    places = np.full(len(found.parsed), -1)
    places[rows] = np.arange(len(rows))
    taken = pa.array(places, mask=places < 0)
    for name, column in some.columns.items():
        spread, before = column.take(taken), found.columns.get(name)
        found.columns[name] = spread if before is None else pc.coalesce(before, spread)


def _buffers(lines: pa.StringArray) -> tuple[memoryview, memoryview]:
    """Return the offsets of the lines and their bytes."""
    _, offsets, data = lines.buffers()
    return memoryview(offsets), memoryview(data)


def _found(split: SplitLines) -> Found:
    """Return the result of compiled code, without empty columns."""
    known = np.frombuffer(split.known, np.uint8).astype(bool)
    return Found(known, {name: _arrow(column) for name, column in split.columns.items() if not column.is_empty})


def _syslog(lines: pa.StringArray, parse: Parser) -> Found:
    """Split syslog into columns, with compiled code if available."""
    if split_syslog is None:
        return _line_by_line(lines, parse)
    found = _found(split_syslog(*_buffers(lines)))
    if "priority" in found.columns:
        texts = found.columns["priority"].dictionary_encode()
        named = [facility_and_severity(text) for text in texts.dictionary.to_pylist()]
        for name, values in zip(("facility", "severity"), zip(*named, strict=True), strict=True):
            found.columns[name] = pa.array(values, pa.string()).take(texts.indices)
    return found


def _logfmt(lines: pa.StringArray, parse: Parser) -> Found:
    """Split logfmt into columns, with compiled code if available."""
    return _keyed(lines, parse, split_logfmt) or _line_by_line(lines, parse)


def _delimited(lines: pa.StringArray, values: Values, parse: Parser) -> Found:
    """Split delimited values into columns, with compiled code if available."""
    offsets, data = _buffers(lines)
    # Lines that are too short for so many values would only take memory.
    if split_delimited is None or not values.names or len(lines) * len(values.names) > _MOST_VALUES_A_BYTE * len(data):
        return _line_by_line(lines, parse)
    return _found(split_delimited(offsets, data, ord(values.delimiter), values.names))


def _arrow(column: TextColumn) -> pa.StringArray:
    validity, offsets = _arrow_buffers(column)
    bits = None if validity is None else pa.py_buffer(validity)
    return pa.StringArray.from_buffers(len(column), pa.py_buffer(offsets), pa.py_buffer(column.data), bits)


def _with_others(found: Found, lines: pa.StringArray, parse: Parser) -> Found:
    """Parse the lines not recognised so far one by one, and add their fields."""
    if not found.parsed.all():
        rows = np.flatnonzero(~found.parsed)
        _add_single(found, rows.tolist(), _some(lines, rows).to_pylist(), parse)
    return found


def _regex(expression: Pattern[str], parse: Parser) -> ColumnParser:
    """Return a parser that makes a column of each group of a pattern."""
    names = sorted(expression.groupindex, key=lambda name: expression.groupindex[name])
    free = sendable_fields(dict.fromkeys(names, ""))
    if free is None:  # The name of a group is too long, so every line is sent as text.
        return lambda lines: _line_by_line(lines, parse)
    places = [expression.groupindex[name] for name in names]
    steps = steps_of(expression, places, whole=True)

    def matched(lines: pa.StringArray) -> Found:
        return _matched(lines, expression, dict(zip(free, places, strict=True)))

    def columns(lines: pa.StringArray) -> Found:
        if steps is None:
            return matched(lines)
        found = _captured(lines, steps, list(free))
        rest = np.flatnonzero(~found.parsed)
        if len(rest):
            _add_some(found, rest, matched(_some(lines, rest)))
        return found

    return columns


def _matched(lines: pa.StringArray, expression: Pattern[str], places: Mapping[str, int]) -> Found:
    """Match all lines with the regular expression.

    :param places: the numbers of the groups by field name.
    """
    matches = expression.fullmatch_all(lines.to_pylist())
    parsed = np.fromiter((match is not None for match in matches), bool, len(matches))
    columns = {
        name: pa.array([None if match is None else match[place] for match in matches], pa.string())
        for name, place in places.items()
    }
    return Found(parsed, columns)


def _captured(lines: pa.StringArray, steps: Steps, names: Sequence[str]) -> Found:
    """Match the lines with compiled code; lines that it cannot decide stay unrecognised."""
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, np.int32)[1 : len(lines) + 1].astype(np.uint64)
    known, columns = steps.capture(len(lines), ends.tobytes(), data.to_pybytes())
    fields = {name: _arrow(TextColumn(*column)) for name, column in zip(names, columns, strict=True)}
    return Found(np.frombuffer(known, np.uint8).astype(bool), fields)


# The function behind ``json.loads``, without its checks.
_scan: Callable[[str, int], tuple[Any, int]] = vars(json.JSONDecoder())["scan_once"]


def _json_objects(lines: pa.StringArray) -> Found:
    """Split JSON objects into columns, with compiled code if available."""
    return _keyed(lines, parse_json, split_objects) or _loaded_objects(lines)


def _keyed(lines: pa.StringArray, parse: Parser, split_lines: KeyedSplit | None) -> Found | None:
    """Split lines of keys and values with compiled code; None if there is none, or too few lines match."""
    if split_lines is None:
        return None
    found = _found(split_lines(*_buffers(lines)))
    # The name under which a field is sent may depend on the other fields of its line.
    if not all(map(is_plain, found.columns)) or np.count_nonzero(found.parsed) < _MOSTLY * len(lines):
        return None
    return _with_others(found, lines, parse)


def _loaded_objects(lines: pa.StringArray) -> Found:
    """Make columns of the keys that most objects have, and add other objects one by one."""
    objects = [_object(text) for text in lines.to_pylist()]
    parsed = np.fromiter((each is not None for each in objects), bool, len(objects))
    rows: dict[tuple[str, ...], list[int]] = {}
    for row, each in enumerate(objects):
        if each is not None:
            rows.setdefault(tuple(each), []).append(row)
    found = Found(parsed)
    if not rows:
        return found
    usual = max(rows, key=lambda names: len(rows[names]))
    names = sendable_fields(dict.fromkeys(usual, ""))
    if names is not None:
        found.columns = _json_columns(list(names), objects, rows.pop(usual))
    for others in rows.values():
        for row in others:
            _add_object(found, row, objects[row] or {})
    return found


def _object(text: str) -> dict[str, Any] | None:
    """Return the JSON object of a line; None for another value, or invalid JSON."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value, end = _scan(text, 0) if text[0] == "{" else ({}, -1)
        if end != len(text):
            value = json.loads(text)
        for name, inner in value.items():
            if isinstance(inner, dict | list):
                value[name] = json_text(inner)
        return value
    # The line nests too deeply for the parser, or has too long an integer for Python.
    except (ValueError, RecursionError, StopIteration):
        return None


def _json_columns(
    names: Sequence[str], objects: Sequence[dict[str, Any] | None], rows: Sequence[int]
) -> dict[str, pa.Array]:
    """Return the columns of objects that have the same keys; other rows are null."""
    values = list(zip(*[(objects[row] or {}).values() for row in rows], strict=True))
    columns = {name: _text_column(column) for name, column in zip(names, values, strict=True)}
    if len(rows) < len(objects):
        places = np.full(len(objects), -1)
        places[rows] = np.arange(len(rows))
        taken = pa.array(places, mask=places < 0)
        columns = {name: column.take(taken) for name, column in columns.items()}
    return columns


def _text_column(values: Sequence[Any]) -> pa.Array:
    texts = values if set(map(type, values)) == {str} else [_text(value) for value in values]
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:
        return pa.array([text if text is None else sendable(text) for text in texts], pa.string())


def _text(value: Any) -> str | None:
    return None if value is None else json_text(value)


def _add_object(found: Found, row: int, value: Mapping[str, Any]) -> None:
    fields = sendable_fields({name: json_text(each) for name, each in value.items() if each is not None})
    found.parsed[row] = fields is not None
    if fields:
        found.fields[row] = fields
