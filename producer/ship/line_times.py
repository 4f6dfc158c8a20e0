"""The time that a line tells, where it can be told without a guess: with date, year and zone.

Known are ISO 8601 (``2024-01-31T12:00:00.5+01:00``), the times of syslog (:mod:`producer.wire.times`) and the form of
access logs (``31/Jan/2024:12:00:00 +0100``), in the field ``time``, ``timestamp``, ``@timestamp`` or ``ts``. A zone
that the user names is that of times that have none; then the forms of error logs (Apache's and nginx's) are known, too.
A format that the user names is the only one. Times are nanoseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial

from ..model.errors import ConfigError
from ..wire.times import AHEAD, NANOS, Place, moment_in, moment_of, placed_in, zone_of
from .errors import InputError

#: The fields that tell the time; the first one that a line has counts.
TIME_FIELDS = ("time", "timestamp", "@timestamp", "ts")
#: Formats that are numbers since 1970, and how many of them are a second.
UNIX = {"unix": 1, "unix-ms": 1_000, "unix-us": 1_000_000, "unix-ns": NANOS}

_END = 2**32
# What tells the zone in a format.
_ZONES = ("%z", "%Z")
_ACCESS_LOG = "%d/%b/%Y:%H:%M:%S"
# What has no zone by its nature: error logs of Apache and nginx.
_WITHOUT_ZONE = ("%a %b %d %H:%M:%S.%f %Y", "%a %b %d %H:%M:%S %Y", "%Y/%m/%d %H:%M:%S")


@dataclass(frozen=True, slots=True)
class LineTimes:
    """How lines tell their time.

    :ivar zone: of times that have none: a name such as ``Asia/Shanghai``, or ``+08:00``; None if there is none.
    :ivar format: of the times, as of ``strptime``, or one of :data:`UNIX`; None for the forms that are known.
    """

    zone: str | None = None
    format: str | None = None

    def check(self) -> None:
        """Check what a person has given.

        :raises InputError: there is no such zone; or the format is none, or tells no zone and none is named.
        """
        place = _place_of(self.zone)
        if self.format is None or self.format in UNIX:
            return
        told = datetime(2024, 2, 28, 12, 30, 45, tzinfo=UTC)
        if place is None and not any(part in self.format for part in _ZONES):
            raise InputError(f"--line-time-format {self.format!r} has no zone (%z): name it with --line-time-zone")
        if "%" not in self.format or moment_in(told.strftime(self.format), self.format, place, told) is None:
            raise InputError(
                f"--line-time-format {self.format!r} holds no time: use the codes of strptime, such as "
                f"'%Y-%m-%d %H:%M:%S,%f', or one of {', '.join(UNIX)}"
            )

    def reader(self) -> Callable[[str], int | None]:
        """From a text to the moment that it names; None if it names none, or one that LogHub has no number for."""
        return _reader(self)

    def of_fields(self, fields: Mapping[str, str]) -> int | None:
        """The moment that a line's fields tell."""
        name = next((name for name in TIME_FIELDS if name in fields), None)
        return None if name is None else self.reader()(fields[name])


def _place_of(name: str | None) -> Place | None:
    """
    :raises InputError: there is no such zone.
    """
    try:
        return None if name is None else placed_in(zone_of(name))
    except ConfigError as error:
        raise InputError(
            f"--line-time-zone {name!r} is not known here: use a name such as Asia/Shanghai or UTC, or an offset such "
            "as +08:00"
        ) from error


@lru_cache(maxsize=16)
def _reader(times: LineTimes) -> Callable[[str], int | None]:
    place = _place_of(times.zone)
    if times.format is None:
        read = partial(_known, place=place)
    elif times.format in UNIX:
        read = partial(_unix, unit=UNIX[times.format])
    else:
        read = partial(_formatted, form=times.format, place=place)
    # Neighbours in a log tell the same second.
    return lru_cache(maxsize=4096)(lambda text: _in_range(read(text)))


def _in_range(moment: int | None) -> int | None:
    return moment if moment is not None and 0 <= moment < _END * NANOS else None


def _known(text: str, place: Place | None) -> int | None:
    """A moment in one of the forms that are known."""
    latest = datetime.now(UTC) + AHEAD
    moment = moment_of(text, place, latest)
    if moment is not None or text[4:5] == "-":
        return moment
    form = f"{_ACCESS_LOG} %z" if " " in text else _ACCESS_LOG
    forms = [form, *_WITHOUT_ZONE] if place is not None else [form]
    return next((moment for form in forms if (moment := moment_in(text, form, place, latest)) is not None), None)


def _unix(text: str, unit: int) -> int | None:
    try:
        seconds = Decimal(text) / unit
        return int(seconds * NANOS) if 0 <= seconds < _END else None
    except (InvalidOperation, ArithmeticError):
        return None


def _formatted(text: str, form: str, place: Place | None) -> int | None:
    """A moment in a format that the user names."""
    return moment_in(text, form, place, datetime.now(UTC) + AHEAD)
