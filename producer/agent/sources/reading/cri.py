r"""Container logs in the format of Kubernetes' runtimes (CRI): ``2016-10-06T00:17:09.669794202Z stdout P text``.

A line has a time, a stream, a tag and text. The runtime splits a long line of a container into parts of 16 KiB with the
tag ``P``, and a last part with the tag ``F``. Parts of the two streams may alternate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast

from ....wire.times import NANOS, moment_of
from ...events.batch import EventBatch, Position

_TAGGED = re.compile(rb"^\S+ (stdout|stderr) ([FP])", re.MULTILINE)
#: A line in another format matches, too: all of it is text.
_LINE = re.compile(rb"^(?:(\S+) (stdout|stderr) ([FP])(?::\S*)?(?: |$))?(.*)$", re.MULTILINE)
_PART = b"P"
#: The usual characters after the seconds of a time, and at its end.
_USUAL = ".Z"
_TO_THE_SECOND = len("2016-10-06T00:17:09")

#: Time, stream, tag, text.
_Row = tuple[bytes, bytes, bytes, bytes]


def whole_end(data: bytes) -> int:
    """Return the end of the lines that are whole events, in both streams.

    :param data: whole lines.
    """
    at = 0
    while (found := data.find(b" P", at)) >= 0:
        start = data.rfind(b"\n", 0, found) + 1
        line = _TAGGED.match(data, start)
        at = found + 1
        if line is not None and line.end() == found + 2:
            end = _end_of_parts(data, start)
            if end is None:
                return start
            at = end
    return len(data)


def _end_of_parts(data: bytes, start: int) -> int | None:
    """Return an offset in the line that completes the open events of both streams; None if there is none.

    :param start: the start of a partial line.
    """
    unfinished: set[bytes] = set()
    for line in _TAGGED.finditer(data, start):
        stream, tag = line.groups()
        (unfinished.add if tag == _PART else unfinished.discard)(stream)
        if not unfinished:
            return line.end()
    return None


def events_of(data: bytes, headers: Mapping[str, str], position: Position) -> EventBatch:
    """Return the events of whole lines, with the headers ``time``, ``timestamp`` (milliseconds) and ``stream``."""
    rows: list[_Row] = _LINE.findall(data.removesuffix(b"\n"))
    times, streams, _, texts = zip(*(_joined(rows) if b" P" in data else rows), strict=True)
    bodies = [text.removesuffix(b"\r") for text in texts] if b"\r" in data else texts
    columns = {
        "stream": _decoded(streams),
        "time": _decoded(times),
        "timestamp": _milliseconds(_decoded(times)),
    }
    known = {name: column for name, column in columns.items() if any(column)}
    return EventBatch.of_columns(bodies, known, position).with_shared(headers)


def _joined(rows: Sequence[_Row]) -> list[_Row]:
    """Join the parts of each event, in the order of the last parts; the event's time is that of its first part."""
    found: list[_Row] = []
    parts: dict[bytes, list[_Row]] = {}
    for row in rows:
        _, stream, tag, _ = row
        if tag == _PART:
            parts.setdefault(stream, []).append(row)
        else:
            found.append(_one([*parts.pop(stream, ()), row]))
    return found + [_one(rest) for rest in parts.values()]


def _one(parts: Sequence[_Row]) -> _Row:
    time, stream, tag, text = parts[0]
    return time, stream, tag, text if len(parts) == 1 else b"".join([part[3] for part in parts])


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
