"""The moments that times in log lines name, in nanoseconds since 1970.

Known are ISO 8601 with a date, with ``T`` or a space before the time of day, and the times of syslog (:mod:`.syslog`),
which may have no zone and no year. A time without a zone is placed by the caller. A time without a year is the last
one that is not ahead.

Example: ``2024-01-31T12:00:00.123456789Z`` is 1706702400123456789.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo

#: Gives a moment without a zone one, such as ``datetime.astimezone`` that of this machine.
Place = Callable[[datetime], datetime]

NANOS = 1_000_000_000
_EPOCH, _SECOND = datetime.fromtimestamp(0, UTC), timedelta(seconds=1)
_DIGITS = len(str(NANOS)) - 1
# Back to the last 29th of February, also over a year such as 2100, which has none.
_YEARS_BACK = 8

_FRACTION = r"(?:[.,](?P<fraction>\d+))?"
_ZONE = r"(?: ?(?P<zone>Z|UTC|GMT|[+-]\d\d(?::?\d\d)?))?"
_ISO = re.compile(rf"(?P<second>\d{{4}}-\d\d-\d\d(?:\D\d\d:\d\d(?::\d\d)?)?){_FRACTION}{_ZONE}", re.ASCII)
_CLASSIC = re.compile(
    r"(?:(?P<first>\d{4}) )?(?P<month>[A-Z][a-z]{2}) {1,2}(?P<day>\d\d?) (?:(?P<year>\d{4}) )?"
    rf"(?P<hour>\d\d?):(?P<minute>\d\d):(?P<second>\d\d){_FRACTION}{_ZONE}(?: (?P<last>\d{{4}}))?",
    re.ASCII,
)
_MONTHS = {"JanFebMarAprMayJunJulAugSepOctNovDec"[3 * at : 3 * at + 3]: at + 1 for at in range(12)}


def moment_of(text: str, place: Place | None, latest: datetime) -> int | None:
    """The moment that a text names; None if it names none.

    :param place: of a time without a zone; None if such a time names no moment.
    :param latest: a time without a year is not behind this moment.
    """
    try:
        if text[4:5] == "-":
            return _of_iso(text, place)
        match = _CLASSIC.fullmatch(text)
        return None if match is None else _of_classic(match, place, latest)
    except (ValueError, KeyError, OverflowError, OSError):
        return None  # a day or a month that there is not, or no such moment in this zone


def without_fraction(text: str) -> tuple[str, str]:
    """A time to the second, and the digits after the second."""
    whole, point, behind = text.partition("." if "." in text else ",")
    if not point:
        return text, ""
    rest = behind.lstrip("0123456789")
    return whole + rest, behind[: len(behind) - len(rest)]


def nanoseconds(moment: datetime) -> int:
    """An aware moment as nanoseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


def _of_iso(text: str, place: Place | None) -> int | None:
    match = _ISO.fullmatch(text)
    if match is None:  # a rarer form: a week, no punctuation, seconds in the zone
        placed = _placed(datetime.fromisoformat(text), None, place)
        return None if placed is None else nanoseconds(placed)
    return _joined(datetime.fromisoformat(match["second"]), match, place)


def _of_classic(match: re.Match[str], place: Place | None, latest: datetime) -> int | None:
    day, hour, minute, second = [int(match[name]) for name in ("day", "hour", "minute", "second")]
    month, told = _MONTHS[match["month"]], match["first"] or match["year"] or match["last"]
    if told:
        return _joined(datetime(int(told), month, day, hour, minute, second), match, place)
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
    """A second, and its fraction and zone."""
    placed = _placed(second, match["zone"], place)
    if placed is None:
        return None
    fraction = (match["fraction"] or "")[:_DIGITS].ljust(_DIGITS, "0")
    return (placed - _EPOCH) // _SECOND * NANOS + int(fraction)


def _placed(moment: datetime, zone: str | None, place: Place | None) -> datetime | None:
    if zone is not None:
        return moment.replace(tzinfo=_offset(zone))
    return moment if moment.tzinfo is not None else None if place is None else place(moment)


def _offset(zone: str) -> tzinfo:
    if zone in ("Z", "UTC", "GMT"):
        return UTC
    distance = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:].removeprefix(":") or "0"))
    return timezone(-distance if zone[0] == "-" else distance)
