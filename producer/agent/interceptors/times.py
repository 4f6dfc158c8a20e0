"""Conversion of times in texts, by patterns in Java's syntax or formats by name, to milliseconds since the epoch."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

from ...model.errors import ConfigError
from ...runtime.clock import Clock
from ...wire.time_formats import Reader, named
from ...wire.times import AHEAD, moment_in, placed_in, with_year, zone_of

#: Letters of a pattern, and the directive of ``strptime`` for each; the first match counts.
_LETTERS = (
    ("yy(?!y)", "%y"),
    ("[yu]+", "%Y"),
    ("MMMM+", "%B"),
    ("MMM", "%b"),
    ("M+", "%m"),
    ("d+", "%d"),
    ("D+", "%j"),
    ("EEEE+", "%A"),
    ("E+", "%a"),
    ("H+", "%H"),
    ("h+", "%I"),
    ("m+", "%M"),
    ("s+", "%S"),
    ("S+", "%f"),
    ("a+", "%p"),
    ("[ZXx]+", "%z"),
    ("z+", "%Z"),
)
_DAY = 86_400
#: Longest text whose time is cached, in characters: a peer's long ones could take gigabytes.
_LONGEST_KEPT = 128
_TOKEN = re.compile("'(?P<quoted>[^']*)'|" + "|".join(f"(?P<t{n}>{p})" for n, (p, _) in enumerate(_LETTERS)) + "|(.)")


def check_time(pattern: str) -> None:
    """Check a pattern, or the name of a format.

    :raises ConfigError: it is neither.
    """
    if named(pattern) is None:
        strptime_format(pattern)


def strptime_format(pattern: str) -> str:
    """Convert a pattern such as ``yyyy-MM-dd HH:mm:ss,SSS`` to ``strptime``'s syntax, unless it has ``%`` already.

    :raises ConfigError: a part of it is not supported.
    """
    directives = pattern if "%" in pattern else _directives(pattern)
    try:
        datetime.strptime("", with_year(directives))
    except re.error as error:
        raise ConfigError("times", "a pattern of a time has a part twice", pattern) from error
    except ValueError as error:
        if "does not match" not in str(error):
            raise ConfigError("times", str(error), pattern) from error
    return directives


def _directives(pattern: str) -> str:
    parts: list[str] = []
    for token in _TOKEN.finditer(pattern):
        if token["quoted"] is not None:
            parts.append(token["quoted"] or "'")
        elif token.lastgroup is not None:
            parts.append(_LETTERS[int(token.lastgroup[1:])][1])
        elif token[0].isalpha():
            raise ConfigError("times", f"the letter {token[0]!r} in a pattern of a time is not supported", pattern)
        else:
            parts.append(token[0])
    return "".join(parts)


def milliseconds_parser(pattern: str, zone: str | None, clock: Clock) -> Callable[[str], str | None]:
    """Return a parser from a time's text to milliseconds; it returns None for an invalid text.

    A format without a year means the latest such time.

    :param pattern: a pattern, or the name of a format.
    :param zone: the time zone of times without one; None for this machine's.
    """
    read = named(pattern) or _reader(strptime_format(pattern))
    place = datetime.astimezone if zone is None else placed_in(zone_of(zone))

    def parse(text: str, day: int) -> str | None:
        moment = read(text, place, datetime.fromtimestamp(day * _DAY, UTC) + AHEAD)
        return None if moment is None else str(round(moment / 1_000_000))

    kept = lru_cache(4096)(parse)  # many lines have the same second

    def milliseconds(text: str) -> str | None:
        return (kept if len(text) <= _LONGEST_KEPT else parse)(text, int(clock.time() // _DAY) + 1)

    return milliseconds


def _reader(directives: str) -> Reader:
    return lambda text, place, latest: moment_in(text, directives, place, latest)
