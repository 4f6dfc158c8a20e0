"""Container logs, as runtimes write them: parts of lines are joined for each stream, then lines of multi-line events.

Lines of the two streams alternate, so an event may lie between the lines of another one. A block has to end where no
event of either stream goes on. For example, ``out 1``, ``err 1 part``, ``out 2``, ``err 1 end`` ends only at its begin,
after ``out 1``, or at its end.

The last event of a stream may go on. The time of each line decides: the event is complete if the other stream has a
line that is ``log_settle`` seconds later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import ModuleType
from typing import NamedTuple, cast

from ....wire.log_start import SEEN_BYTES, Logs
from ....wire.times import NANOS, moment_of
from ...events.batch import EventBatch, Position
from . import cri, docker
from .cri import PART, Row

#: The formats: ``containers`` is either, recognized by the first byte of a line.
FORMATS = ("cri", "docker", "containers")

#: Most lines of which events are joined, since the objects of a short line take a hundred times its bytes.
_MOST_LINES = 1 << 15
#: The usual characters after the seconds of a time, and at its end.
_USUAL = ".Z"
_TO_THE_SECOND = len("2016-10-06T00:17:09")


class _Event(NamedTuple):
    """An event, or a line whose parts are joined.

    :ivar first: the number of its first row.
    :ivar last: the number of its last row.
    :ivar row: its first row, with the joined text.
    :ivar is_open: True if later rows may continue it.
    """

    first: int
    last: int
    row: Row
    is_open: bool


class ContainerLines:
    """Reader of container logs' lines.

    :param line_format: one of ``FORMATS``.
    :param logs: the rule by which multi-line events begin; None if each line is an event.
    """

    def __init__(self, line_format: str, logs: Logs | None) -> None:
        self._line_format, self._logs = line_format, logs

    def whole_end(self, data: bytes, settle: float) -> int:
        """Return the end of the lines that are whole events, in both streams.

        :param data: whole lines.
        :param settle: seconds by which a line of the other stream has to be later than an event to complete it.
        """
        form = self._form(data)
        if self._logs is None and not form.has_parts(data):
            return len(data)
        lines = data.split(b"\n", _MOST_LINES)
        if len(lines) <= _MOST_LINES:
            return self._whole_end(data, settle)
        data = data[: -len(lines[-1]) or None]
        return self._whole_end(data, settle) or self._whole_end(data, 0.0) or len(data)

    def _whole_end(self, data: bytes, settle: float) -> int:
        rows = self._form(data).rows_of(data.removesuffix(b"\n"))
        count = _whole_rows(rows, self._events(rows), settle)
        return sum(len(line) + 1 for line in data.split(b"\n", count)[:count]) if count < len(rows) else len(data)

    def batch(self, data: bytes, headers: Mapping[str, str], position: Position) -> EventBatch:
        """Return the events of whole lines, with the headers ``time``, ``timestamp`` (milliseconds) and ``stream``."""
        rows: list[Row] = self._form(data).rows_of(data.removesuffix(b"\n"))
        if self._logs is not None or any(row[2] == PART for row in rows):
            rows = [event.row for event in self._events(rows)]
        times, streams, _, texts = zip(*rows, strict=True)
        returns = b"\r" in data or rb"\r" in data  # JSON escapes it
        bodies = [text.removesuffix(b"\r") for text in texts] if returns else texts
        columns = {
            "stream": _decoded(streams),
            "time": _decoded(times),
            "timestamp": _milliseconds(_decoded(times)),
        }
        known = {name: column for name, column in columns.items() if any(column)}
        return EventBatch.of_columns(bodies, known, position).with_shared(headers)

    def _form(self, data: bytes) -> ModuleType:
        is_docker = data.startswith(b"{") if self._line_format == "containers" else self._line_format == "docker"
        return docker if is_docker else cri

    def _events(self, rows: Sequence[Row]) -> list[_Event]:
        """Return the events in the order of their last rows."""
        lines = list(_lines(rows))
        events = lines if self._logs is None else _logs(lines, self._logs)
        return sorted(events, key=lambda event: event.last)


def _lines(rows: Sequence[Row]) -> Iterator[_Event]:
    """Yield the lines, with their parts joined; a line's time is that of its first part."""
    parts: dict[bytes, list[int]] = {}
    for number, (_, stream, tag, _) in enumerate(rows):
        if tag == PART:
            parts.setdefault(stream, []).append(number)
        else:
            yield _line(rows, [*parts.pop(stream, ()), number], is_open=False)
    for rest in parts.values():
        yield _line(rows, rest, is_open=True)


def _line(rows: Sequence[Row], parts: Sequence[int], *, is_open: bool) -> _Event:
    time, stream, tag, text = rows[parts[0]]
    if len(parts) > 1:
        text = b"".join([rows[part][3] for part in parts])
    return _Event(parts[0], parts[-1], (time, stream, tag, text), is_open)


def _logs(lines: Sequence[_Event], logs: Logs) -> Iterator[_Event]:
    """Yield multi-line events, joined for each stream. A line in another format is an event of its own."""
    begun: dict[bytes, list[_Event]] = {}
    starts = logs.start.match_all([line.row[3][:SEEN_BYTES].removesuffix(b"\r") for line in lines])
    for line, is_start in zip(lines, starts, strict=True):
        stream = line.row[1]
        if not stream:
            yield line
            continue
        if is_start and stream in begun:
            yield _log(begun.pop(stream), is_open=False)
        begun.setdefault(stream, []).append(line)
    for rest in begun.values():
        yield _log(rest, is_open=True)


def _log(lines: Sequence[_Event], *, is_open: bool) -> _Event:
    time, stream, tag, text = lines[0].row
    if len(lines) > 1:
        text = b"\n".join([line.row[3].removesuffix(b"\r") for line in lines])
    return _Event(lines[0].first, lines[-1].last, (time, stream, tag, text), is_open)


def _whole_rows(rows: Sequence[Row], events: Sequence[_Event], settle: float) -> int:
    """Return the number of rows before the first event that is incomplete.

    :param events: the events in the order of their last rows.
    """
    end = min([event.first for event in events if event.is_open and not _has_rested(rows, event, settle)], default=None)
    if end is None:
        return len(rows)
    for event in reversed(events):
        if event.first < end <= event.last:
            end = event.first
    return end


def _has_rested(rows: Sequence[Row], event: _Event, settle: float) -> bool:
    """Return True if the newest line is so much later than an event that nothing continues it."""
    newest = next(time for time, stream, *_ in reversed(rows) if stream)
    last, now = (
        moment_of(time.decode(errors="replace"), datetime.astimezone) for time in (rows[event.last][0], newest)
    )
    return last is not None and now is not None and now - last > settle * NANOS


def _decoded(values: Sequence[bytes]) -> list[str | None]:
    texts = b"\n".join(values).decode(errors="replace").split("\n")
    return [text or None for text in texts]


def _milliseconds(times: Sequence[str | None]) -> list[str | None]:
    """Return milliseconds since the epoch; None for a text that is not a time."""
    if None in times:
        return [None if time is None else _millisecond(time) for time in times]
    known = cast(Sequence[str], times)
    fractions = [time[_TO_THE_SECOND + 1 : _TO_THE_SECOND + 4] for time in known]
    points = "".join([time[_TO_THE_SECOND : _TO_THE_SECOND + 1] + time[-1] for time in known])
    digits = "".join(fractions)
    if points == _USUAL * len(known) and digits.isdecimal() and len(digits) == 3 * len(known):
        texts = [time[:_TO_THE_SECOND] for time in known]
        seconds = {text: moment_of(f"{text}Z", None) for text in set(texts)}
        known_seconds = {text: moment // NANOS for text, moment in seconds.items() if moment is not None}
        if len(known_seconds) == len(seconds):
            return [f"{known_seconds[text]}{fraction}" for text, fraction in zip(texts, fractions, strict=True)]
    return [_millisecond(time) for time in known]


def _millisecond(time: str) -> str | None:
    moment = moment_of(time, datetime.astimezone)
    return None if moment is None else str(moment // 1_000_000)
