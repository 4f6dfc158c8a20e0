"""Reads the time of a line, if it is unambiguous: with date, year and zone.

Known forms are ISO 8601 (``2024-01-31T12:00:00.5+01:00``), the times of syslog (:mod:`producer.wire.times`) and those
of access logs (``31/Jan/2024:12:00:00 +0100``). The time is read from the field ``time``, ``timestamp``, ``@timestamp``
or ``ts``. The zone of the user applies to times without one, such as those of error logs of Apache and nginx. A format
of the user replaces all known forms. Times are nanoseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial

from ..model.errors import ConfigError
from ..wire.time_formats import NAMED, named
from ..wire.times import AHEAD, NANOS, Place, moment_in, moment_of, placed_in, zone_of
from .errors import InputError

#: The fields that may hold the time; the first one that a line has is used.
TIME_FIELDS = ("time", "timestamp", "@timestamp", "ts")

_END = 2**32
# The codes of the zone in a format.
_ZONES = ("%z", "%Z")
_ACCESS_LOG = "%d/%b/%Y:%H:%M:%S"
# Forms without a zone: error logs of Apache and nginx.
_WITHOUT_ZONE = ("%a %b %d %H:%M:%S.%f %Y", "%a %b %d %H:%M:%S %Y", "%Y/%m/%d %H:%M:%S")


@dataclass(frozen=True, slots=True)
class LineTimes:
    """The form of the times in lines.

    :ivar zone: the zone of times without one: a name such as ``Asia/Shanghai``, or ``+08:00``; None to ignore such
        times.
    :ivar format: a format of ``strptime``, or a name in :data:`~producer.wire.time_formats.NAMED`; None for the known
        forms.
    """

    zone: str | None = None
    format: str | None = None

    def check(self) -> None:
        """Check the user's zone and format.

        :raises InputError: the zone is unknown, or the format is invalid, or neither gives a zone.
        """
        place = _place_of(self.zone)
        if self.format is None or named(self.format) is not None:
            return
        sample = datetime(2024, 2, 28, 12, 30, 45, tzinfo=UTC)
        if place is None and not any(part in self.format for part in _ZONES):
            raise InputError(f"--line-time-format {self.format!r} has no zone (%z): add it, or use --line-time-zone")
        if "%" not in self.format or moment_in(sample.strftime(self.format), self.format, place, sample) is None:
            raise InputError(
                f"--line-time-format {self.format!r} is not a format of times: use the codes of strptime, such as "
                f"'%Y-%m-%d %H:%M:%S,%f', or one of {', '.join(NAMED)}"
            )

    def reader(self) -> Callable[[str], int | None]:
        """Return a function from text to its time in nanoseconds; None for text without a valid time."""
        return _reader(self)

    def of_fields(self, fields: Mapping[str, str]) -> int | None:
        """Return the time in the fields of a line, nanoseconds since 1970; None if there is none."""
        name = next((name for name in TIME_FIELDS if name in fields), None)
        return None if name is None else self.reader()(fields[name])


def _place_of(name: str | None) -> Place | None:
    """Return the zone of a name; None for no name.

    :raises InputError: the zone is unknown.
    """
    try:
        return None if name is None else placed_in(zone_of(name))
    except ConfigError as error:
        raise InputError(
            f"--line-time-zone {name!r} is unknown: use a name such as Asia/Shanghai or UTC, or an offset such "
            "as +08:00"
        ) from error


@lru_cache(maxsize=16)
def _reader(times: LineTimes) -> Callable[[str], int | None]:
    place = _place_of(times.zone)
    known = times.format is None
    read = partial(_known, place=place) if known else partial(_formatted, form=str(times.format), place=place)
    # Neighbouring lines of a log often have the same time.
    return lru_cache(maxsize=4096)(lambda text: _in_range(read(text)))


def _in_range(moment: int | None) -> int | None:
    return moment if moment is not None and 0 <= moment < _END * NANOS else None


def _known(text: str, place: Place | None) -> int | None:
    """Return the time of a text in a known form."""
    latest = datetime.now(UTC) + AHEAD
    moment = moment_of(text, place, latest)
    if moment is not None or text[4:5] == "-":
        return moment
    form = f"{_ACCESS_LOG} %z" if " " in text else _ACCESS_LOG
    forms = [form, *_WITHOUT_ZONE] if place is not None else [form]
    return next((moment for form in forms if (moment := moment_in(text, form, place, latest)) is not None), None)


def _formatted(text: str, form: str, place: Place | None) -> int | None:
    """Return the time of a text in the user's format."""
    latest, read = datetime.now(UTC) + AHEAD, named(form)
    return moment_in(text, form, place, latest) if read is None else read(text, place, latest)
