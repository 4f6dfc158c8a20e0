"""Converts times of log lines to nanoseconds since 1970.

Without a format, it reads ISO 8601 with a date (with ``T`` or a space before the time of day), and the times of syslog
(:mod:`.syslog`). A format of ``strptime`` covers all others. The caller adds the zone of a time without one. A time
without a year is the latest one that is not in the future.

Example: ``2024-01-31T12:00:00.123456789Z`` is 1706702400123456789.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import partial
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..model.errors import ConfigError

#: Adds a zone to a moment without one; ``datetime.astimezone`` adds that of this machine.
Place = Callable[[datetime], datetime]

NANOS = 1_000_000_000
#: Maximum time by which the clock of a sender may be ahead.
AHEAD = timedelta(days=1)
_EPOCH, _SECOND = datetime.fromtimestamp(0, UTC), timedelta(seconds=1)
_DIGITS = len(str(NANOS)) - 1
# Years to search backwards for 29 February, also past a year such as 2100, which has none.
_YEARS_BACK, _LEAP_YEAR = 8, 2000
_OFFSET = re.compile(r"(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>[0-5]\d)", re.ASCII)
# Directives of ``strptime`` that include the year.
_YEARS = ("%Y", "%y", "%c", "%x", "%G")
# ``%f`` accepts six digits.
_BEYOND_MICROSECONDS = re.compile(r"(?<!\d)(\d{6})(\d{1,3})(?!\d)", re.ASCII)

_FRACTION = r"(?:[.,](?P<fraction>\d+))?"
_ZONE = r"(?: ?(?P<zone>Z|UTC|GMT|[+-]\d\d(?::?\d\d)?))?"
_ISO = re.compile(rf"(?P<second>\d{{4}}-\d\d-\d\d(?:\D\d\d:\d\d(?::\d\d)?)?){_FRACTION}{_ZONE}", re.ASCII)
_CLASSIC = re.compile(
    r"(?:(?P<first>\d{4}) )?(?P<month>[A-Z][a-z]{2}) {1,2}(?P<day>\d\d?) (?:(?P<year>\d{4}) )?"
    rf"(?P<hour>\d\d?):(?P<minute>\d\d):(?P<second>\d\d){_FRACTION}{_ZONE}(?: (?P<last>\d{{4}}))?",
    re.ASCII,
)
_MONTHS = {"JanFebMarAprMayJunJulAugSepOctNovDec"[3 * at : 3 * at + 3]: at + 1 for at in range(12)}


def moment_of(text: str, place: Place | None, latest: datetime | None = None) -> int | None:
    """Return the moment of a text, nanoseconds since 1970; None if it has none.

    :param place: adds the zone to a time without one; None to reject such times.
    :param latest: the latest moment of a time without a year; None to reject such times.
    """
    try:
        if text[4:5] == "-":
            return _of_iso(text, place)
        match = _CLASSIC.fullmatch(text)
        return None if match is None else _of_classic(match, place, latest)
    except (ValueError, KeyError, OverflowError, OSError):
        return None  # There is no such day or month, or no such moment in this zone.


def moment_in(text: str, form: str, place: Place | None, latest: datetime) -> int | None:
    """Return the moment of a text in a format of ``strptime``, in which ``%f`` accepts up to nine digits.

    :param place: adds the zone to a time without one; None to reject such times.
    :param latest: the latest moment of a time without a year.
    """
    moment = _formatted(text, form, place, latest)
    if moment is None and "%f" in form and (digits := _BEYOND_MICROSECONDS.search(text)):
        moment = _formatted(text[: digits.start(2)] + text[digits.end(2) :], form, place, latest)
        return None if moment is None else moment + int(digits[2].ljust(3, "0"))
    return moment


def has_year(form: str) -> bool:
    """Return True if a format of ``strptime`` includes the year."""
    return any(part in form for part in _YEARS)


def with_year(form: str) -> str:
    """Return the format with a year in front if it has none; otherwise 29 February would be invalid."""
    return form if has_year(form) else f"%Y {form}"


def zone_of(name: str) -> tzinfo:
    """Return the zone of a name, or of an offset from UTC.

    :raises ConfigError: it is unknown.
    """
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        distance = timedelta(hours=int(offset["hours"]), minutes=int(offset["minutes"]))
        if distance < timedelta(days=1):
            return timezone(-distance if offset["sign"] == "-" else distance)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        rule = "must be a time zone, such as Europe/Berlin, or an offset, such as +08:00"
        raise ConfigError("time_zone", rule, name) from error


def placed_in(zone: tzinfo) -> Place:
    """Return a function that adds this zone to a time without one."""
    return partial(datetime.replace, tzinfo=zone)


def without_fraction(text: str) -> tuple[str, str]:
    """Split a time into the time to the second, and the digits of the fraction."""
    whole, point, behind = text.partition("." if "." in text else ",")
    if not point:
        return text, ""
    rest = behind.lstrip("0123456789")
    return whole + rest, behind[: len(behind) - len(rest)]


def nanoseconds(moment: datetime) -> int:
    """Convert an aware moment to nanoseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


def _of_iso(text: str, place: Place | None) -> int | None:
    match = _ISO.fullmatch(text)
    if match is None:  # A rarer form: a week, no punctuation, or seconds in the zone.
        placed = _placed(datetime.fromisoformat(text), None, place)
        return None if placed is None else nanoseconds(placed)
    return _joined(datetime.fromisoformat(match["second"]), match, place)


def _of_classic(match: re.Match[str], place: Place | None, latest: datetime | None) -> int | None:
    day, hour, minute, second = [int(match[name]) for name in ("day", "hour", "minute", "second")]
    month, written = _MONTHS[match["month"]], match["first"] or match["year"] or match["last"]
    if written:
        return _joined(datetime(int(written), month, day, hour, minute, second), match, place)
    if latest is None:
        return None
    most = nanoseconds(latest)
    for year in range(latest.year, latest.year - _YEARS_BACK - 1, -1):
        if month != 2 or day != 29 or _is_leap(year):
            moment = _joined(datetime(year, month, day, hour, minute, second), match, place)
            if moment is None or moment <= most:
                return moment
    return None


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _joined(second: datetime, match: re.Match[str], place: Place | None) -> int | None:
    """Add the fraction and the zone to a second."""
    placed = _placed(second, match["zone"], place)
    if placed is None:
        return None
    fraction = (match["fraction"] or "")[:_DIGITS].ljust(_DIGITS, "0")
    return (placed - _EPOCH) // _SECOND * NANOS + int(fraction)


def _placed(moment: datetime, zone: str | None, place: Place | None) -> datetime | None:
    if zone is not None:
        return moment.replace(tzinfo=_offset(zone))
    return moment if moment.tzinfo is not None else None if place is None else place(moment)


def _formatted(text: str, form: str, place: Place | None, latest: datetime) -> int | None:
    if has_year(form):
        return _parsed(text, form, place)
    for year in range(latest.year, latest.year - _YEARS_BACK - 1, -1):
        moment = _parsed(f"{year} {text}", f"%Y {form}", place)
        if moment is not None and moment <= nanoseconds(latest):
            return moment
        if moment is None and _parsed(f"{_LEAP_YEAR} {text}", f"%Y {form}", place) is None:
            return None  # The day is missing in any year, not only in this one.
    return None


def _parsed(text: str, form: str, place: Place | None) -> int | None:
    try:
        placed = _placed(datetime.strptime(text, form), None, place)
        return None if placed is None else nanoseconds(placed)
    # There is no such day in this year, no such moment in this zone, or the text or the format is invalid.
    except (ValueError, OverflowError, OSError, re.error):
        return None


def _offset(zone: str) -> tzinfo:
    if zone in ("Z", "UTC", "GMT"):
        return UTC
    distance = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:].removeprefix(":") or "0"))
    return timezone(-distance if zone[0] == "-" else distance)
