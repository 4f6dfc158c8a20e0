"""Reads times in formats that have names, besides those of ``strptime`` (:mod:`.times`).

Example: ``unix_ms`` reads ``1706702400123``, and ``rfc2822`` reads ``Wed, 31 Jan 2024 12:00:00 GMT``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal, InvalidOperation
from email.utils import parsedate_to_datetime

from .times import NANOS, Place, moment_in, moment_of, nanoseconds

#: A function from a text, the zone of times without one, and the latest moment of a time without a year, to the
#: moment, nanoseconds since 1970; None if the text has another format.
Reader = Callable[[str, Place | None, datetime], int | None]

_END = 2**32
_LONGEST_NUMBER = 40


def _iso(text: str, place: Place | None, _latest: datetime) -> int | None:
    return moment_of(text, place) if text[4:5] == "-" else None


def _rfc3339(text: str, _place: Place | None, _latest: datetime) -> int | None:
    """Read a time of ISO 8601 that has a zone."""
    return _iso(text, None, _latest)


def _rfc2822(text: str, place: Place | None, _latest: datetime) -> int | None:
    try:
        moment = parsedate_to_datetime(text)
        placed = moment if moment.tzinfo is not None else place(moment) if place is not None else None
        return None if placed is None else nanoseconds(placed)
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        return None  # There is no such time.


def _formatted(form: str) -> Reader:
    return lambda text, place, latest: moment_in(text, form, place, latest)


def _unix(unit: int) -> Reader:
    """Return a reader of numbers since 1970, with this many units a second."""

    def read(text: str, _place: Place | None, _latest: datetime) -> int | None:
        try:
            seconds = Decimal(text) / unit if len(text) <= _LONGEST_NUMBER else None
            return int(seconds * NANOS) if seconds is not None and 0 <= seconds < _END else None
        except (InvalidOperation, ArithmeticError):
            return None

    return read


_ACCESS = _formatted("%d/%b/%Y:%H:%M:%S %z")

#: The readers by name.
NAMED: dict[str, Reader] = {
    "iso8601": _iso,
    "rfc3339": _rfc3339,
    "rfc2822": _rfc2822,
    "apache": _ACCESS,
    "clf": _ACCESS,
    "apache_error": _formatted("%a %b %d %H:%M:%S.%f %Y"),
    "nginx_error": _formatted("%Y/%m/%d %H:%M:%S"),
    "ctime": _formatted("%a %b %d %H:%M:%S %Y"),
    "syslog": moment_of,
    "unix": _unix(1),
    "unix_ms": _unix(1_000),
    "unix_us": _unix(1_000_000),
    "unix_ns": _unix(NANOS),
}


def named(form: str) -> Reader | None:
    """Return the reader of a format's name; None for a format of ``strptime``. A hyphen counts as an underscore."""
    return NAMED.get(form.replace("-", "_"))
