"""Times in texts, by patterns as Java writes them, as milliseconds since 1970."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

from ...model.errors import ConfigError
from ...runtime.clock import Clock
from ...wire.times import AHEAD, has_year, moment_in, placed_in, with_year, zone_of

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
_DAY = 86_400
#: Characters of a text whose time is remembered: a peer's long ones would take gigabytes.
_LONGEST_KEPT = 128
_TOKEN = re.compile("'(?P<quoted>[^']*)'|" + "|".join(f"(?P<t{n}>{p})" for n, (p, _) in enumerate(_LETTERS)) + "|(.)")


def strptime_format(pattern: str) -> str:
    """A pattern such as ``yyyy-MM-dd HH:mm:ss,SSS`` as ``strptime``'s; one with ``%`` is ``strptime``'s already.

    :raises ConfigError: something in it means nothing here.
    """
    directives = pattern if "%" in pattern else _directives(pattern)
    try:
        datetime.strptime("", with_year(directives))
    except re.error as error:
        raise ConfigError("times", "a time's pattern names something twice", pattern) from error
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
            raise ConfigError("times", f"the letter {token[0]!r} of a time's pattern is not supported", pattern)
        else:
            parts.append(token[0])
    return "".join(parts)


def milliseconds_parser(pattern: str, zone: str | None, clock: Clock) -> Callable[[str], str | None]:
    """A function from a time's text to milliseconds; to None where it is none. A pattern without a year means the last
    time that this was.

    :param zone: of times that name none; None is this machine's.
    """
    directives = strptime_format(pattern)
    place = datetime.astimezone if zone is None else placed_in(zone_of(zone))

    def parse(text: str, day: int) -> str | None:
        moment = moment_in(text, directives, place, datetime.fromtimestamp(day * _DAY, UTC) + AHEAD)
        return None if moment is None else str(round(moment / 1_000_000))

    kept = lru_cache(4096)(parse)  # lines of a log share their seconds

    def milliseconds(text: str) -> str | None:
        today = 0 if has_year(directives) else int(clock.time() // _DAY) + 1
        return (kept if len(text) <= _LONGEST_KEPT else parse)(text, today)

    return milliseconds
