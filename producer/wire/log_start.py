"""Where logs of several lines begin: with a line that matches their start pattern."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
