"""Times in texts, by patterns as Java writes them, as milliseconds since 1970."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ...model.errors import ConfigError
from ...runtime.clock import Clock

#: Letters of a pattern, with how often they come: ``strptime``'s directives, the first that fits.
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
#: Characters of a text whose time is remembered: a peer's long ones would take gigabytes.
_LONGEST_KEPT = 128
#: Directives that stand for a year, alone or with others.
_YEARS = ("%Y", "%y", "%c", "%x", "%G")
_TOKEN = re.compile("'(?P<quoted>[^']*)'|" + "|".join(f"(?P<t{n}>{p})" for n, (p, _) in enumerate(_LETTERS)) + "|(.)")


def strptime_format(pattern: str) -> str:
    """A pattern such as ``yyyy-MM-dd HH:mm:ss,SSS`` as ``strptime``'s; one with ``%`` is ``strptime``'s already.

    :raises ConfigError: something in it means nothing here.
    """
    directives = pattern if "%" in pattern else _directives(pattern)
    try:
        datetime.strptime("", _with_year(directives))
    except re.error as error:
        raise ConfigError("times", "a time's pattern names something twice", pattern) from error
    except ValueError as error:
        if "does not match" not in str(error):
            raise ConfigError("times", str(error), pattern) from error
    return directives


def _has_year(directives: str) -> bool:
    return any(part in directives for part in _YEARS)


def _with_year(directives: str) -> str:
    """Without a year 29 February is none, and Python warns of any day without one."""
    return directives if _has_year(directives) else f"%Y {directives}"


def _directives(pattern: str) -> str:
    parts: list[str] = []
    for token in _TOKEN.finditer(pattern):
        if token["quoted"] is not None:
            parts.append(token["quoted"] or "'")
        elif token.lastgroup is not None:
            parts.append(_LETTERS[int(token.lastgroup[1:])][1])
        elif token[0].isalpha():
            raise ConfigError("times", f"the letter {token[0]!r} of a time's pattern is not supported", pattern)
        else:
            parts.append(token[0])
    return "".join(parts)


def zone_named(name: str | None) -> tzinfo | None:
    """The zone of times that name none; None is this machine's.

    :raises ConfigError: there is none of this name.
    """
    try:
        return None if name is None else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError("time_zone", "must be a time zone, such as Europe/Berlin", name) from error


def milliseconds_parser(pattern: str, zone: tzinfo | None, clock: Clock) -> Callable[[str], str | None]:
    """A function from a time's text to milliseconds; to None where it is none.

    A pattern without a year means the last time that this was: neither next year's, nor older than a year.
    """
    directives = strptime_format(pattern)
    has_year, directives = _has_year(directives), _with_year(directives)

    def parse(text: str, year: int) -> float | None:
        try:
            found = datetime.strptime(text if has_year else f"{year} {text}", directives)
            aware = found if found.tzinfo else (found.replace(tzinfo=zone) if zone else found.astimezone())
            return aware.timestamp()
        except (ValueError, OverflowError, OSError):
            return None

    kept = lru_cache(4096)(parse)  # lines of a log share their seconds

    def milliseconds(text: str) -> str | None:
        find = kept if len(text) <= _LONGEST_KEPT else parse
        tomorrow = datetime.fromtimestamp(clock.time(), UTC) + timedelta(days=1)
        seconds = find(text, 0 if has_year else tomorrow.year)
        if not has_year and (seconds is None or seconds > tomorrow.timestamp()):
            seconds = find(text, tomorrow.year - 1)
        return None if seconds is None else str(round(seconds * 1000))

    return milliseconds
