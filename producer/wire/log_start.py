"""Where logs of several lines begin: with a line that matches their start pattern."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .encodings import last_line_end, line_end_of, to_utf8

#: How many bytes of a line its start pattern sees.
SEEN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Logs:
    """How logs of several lines are told apart.

    :ivar start: a log begins with a line that matches it.
    :ivar max_bytes: of a log; more of them are taken without waiting for its end.
    """

    start: re.Pattern[bytes]
    max_bytes: int


def compile_start(pattern: str) -> re.Pattern[bytes]:
    """The expression that a start line matches; it is matched on bytes.

    :raises ValueError: it does not compile, or matches every line; says which.
    """
    try:
        expression = re.compile(pattern.encode())
    except (re.error, UnicodeEncodeError) as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    if expression.match(b""):
        raise ValueError(f"{pattern!r} matches an empty line, so that every line would be a log")
    return expression


def last_start(data: bytes, pattern: re.Pattern[bytes], *, at_line: bool) -> int:
    """Where the last start line in ``data`` begins; 0 if there is none behind its first byte.

    A line at the end that has no line end may still change, and counts if enough of it is there.

    :param at_line: a line begins with the first byte.
    """
    first = 0 if at_line else data.find(b"\n") + 1 or len(data)
    line_end = len(data)
    while line_end > first:
        line = data.rfind(b"\n", first, line_end) + 1 or first
        text = data[line : min(line_end, line + SEEN_BYTES)]
        ended = line_end < len(data) or len(text) == SEEN_BYTES
        if ended and line and pattern.match(text.removesuffix(b"\r") if line_end - line == len(text) else text):
            return line
        line_end = line - 1
    return 0


def last_start_in(data: bytes, pattern: re.Pattern[bytes], encoding: str, *, first: bool) -> int:
    """Where the last start line in ``data`` of another encoding begins; 0 as of :func:`last_start`.

    :param encoding: with its byte order.
    :param first: the data begin the file, and may have a mark.
    """
    line_end = line_end_of(encoding)
    text = to_utf8(data[: last_line_end(data, 0, line_end)], encoding, first=first)
    at = 0
    for _ in range(text.count(b"\n", 0, last_start(text, pattern, at_line=True))):
        at = _past(data, at, line_end)
        if at < 0:  # UTF-7 can say a line end otherwise
            return 0
    return at


def _past(data: bytes, at: int, line_end: bytes) -> int:
    """The byte after the next line end, which begins where a character does; -1 if there is none."""
    found = data.find(line_end, at)
    while found % len(line_end) and found >= 0:
        found = data.find(line_end, found + 1)
    return found + len(line_end) if found >= 0 else -1
