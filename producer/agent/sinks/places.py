"""Paths and names that may contain headers and times, with Flume's escapes.

``%{name}`` is a header. ``%[localhost]``, ``%[IP]`` and ``%[FQDN]`` are this machine. ``%t`` is milliseconds since the
epoch, and all other letters are parts of a time. The value of a header is always one part of a path; it cannot lead to
another directory.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from hashlib import sha256
from typing import Any, NamedTuple

from ...model.errors import ConfigError
from ..events.batch import EventBatch

_ESCAPE = re.compile(r"%(?:\{(?P<header>[^{}]+)\}|\[(?P<host>\w+)\]|(?P<letter>.))")
#: Characters of a header that are replaced in a path.
_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f]")
_NOTHING = "_"
#: Length of a digest in characters.
_DIGEST = 16

_TIMES: Mapping[str, Callable[[datetime], str]] = {
    **{letter: lambda time, each=f"%{letter}": time.strftime(each) for letter in "aAbBdHIjmMpSyYzD"},  # type: ignore[misc]  # a default binds the letter
    "c": lambda time: time.strftime("%a %b %d %H:%M:%S %Y"),
    "e": lambda time: str(time.day),
    "k": lambda time: str(time.hour),
    "l": lambda time: str((time.hour - 1) % 12 + 1),
    "s": lambda time: str(int(time.timestamp())),
    "t": lambda time: str(round(time.timestamp() * 1000)),
}
_HOSTS: Mapping[str, Callable[[], str]] = {
    "localhost": socket.gethostname,
    "IP": lambda: socket.gethostbyname(socket.gethostname()),
    "FQDN": socket.getfqdn,
}


class Rounding(NamedTuple):
    """Rule to round times down to a multiple of a unit.

    :ivar unit: ``second``, ``minute`` or ``hour``; empty for no rounding.
    """

    unit: str
    value: int

    def down(self, time: datetime) -> datetime:
        """Return the rounded time."""
        if not self.unit:
            return time
        lower = {"second": {}, "minute": {"second": 0}, "hour": {"second": 0, "minute": 0}}[self.unit]
        number: int = getattr(time, self.unit)
        rounded: dict[str, Any] = {self.unit: number - number % self.value, **lower}
        return time.replace(**rounded, microsecond=0)


class Places:
    """Rule for the paths of objects, or for other names made from events.

    :param template: the path with escapes.
    :param zone: the time zone; None for this machine's.
    :param time_header: the header with milliseconds since the epoch; None to use the time of writing.
    :param safe: makes a header's value a part of a path.
    :param option: the option with the template, for messages.
    :raises ConfigError: an escape is unknown.
    """

    def __init__(
        self,
        template: str,
        zone: tzinfo | None,
        rounding: Rounding,
        time_header: str | None,
        *,
        safe: Callable[[str | None], str] | None = None,
        option: str = "path",
    ) -> None:
        self._zone, self._rounding, self._safe, self._option = zone, rounding, safe or _safe, option
        self._headers: list[str] = []
        self._parts: list[str | int | Callable[[datetime], str]] = []
        at = 0
        for escape in _ESCAPE.finditer(template):
            self._parts += [template[at : escape.start()], self._part(escape, template)]
            at = escape.end()
        self._parts.append(template[at:])
        has_time = any(callable(part) for part in self._parts)
        self._time_header = time_header if has_time else None
        #: Resolution of the times in the path, milliseconds.
        self._step = 1 if re.search("%[tscS]", template) or not has_time else 60_000

    def split(self, batch: EventBatch, now: int) -> list[tuple[str, EventBatch]]:
        """Split a batch by the paths of its events.

        :param now: the time for events without one, milliseconds.
        """
        places = self.names(batch, now)
        if len(found := dict.fromkeys(places)) == 1:
            return [(places[0], batch)]
        return [(place, batch.part([each == place for each in places])) for place in found]

    def names(self, batch: EventBatch, now: int) -> list[str]:
        """Return the path of each event.

        :param now: the time for events without one, milliseconds.
        """
        used = [*self._headers, *([self._time_header] if self._time_header else [])]
        if not any(name in batch.columns for name in used):
            return [self._place([batch.shared.get(name) for name in used], now)] * batch.count
        rows = list(zip(*(self._values(batch, name) for name in used), strict=True))
        known = {row: self._place(row, now) for row in dict.fromkeys(rows)}
        return [known[row] for row in rows]

    def table(self, batch: EventBatch) -> str:
        """Return the table of a batch: the path of its first event, with ``*`` for each time."""
        row = [batch.values(name)[0] for name in self._headers]
        return "".join(
            [
                part if isinstance(part, str) else self._safe(row[part]) if isinstance(part, int) else "*"
                for part in self._parts
            ]
        )

    def _values(self, batch: EventBatch, name: str) -> Sequence[str | None]:
        values = batch.values(name)
        if name != self._time_header or self._step == 1:
            return values
        return [_stepped(value, self._step) for value in values]

    def _part(self, escape: re.Match[str], template: str) -> str | int | Callable[[datetime], str]:
        header, host, letter = escape["header"], escape["host"], escape["letter"]
        if header is not None:
            if header not in self._headers:
                self._headers.append(header)
            return self._headers.index(header)
        if letter == "%":
            return "%"
        if host in _HOSTS:
            return _HOSTS[host]()
        if letter not in _TIMES:
            raise ConfigError(
                self._option, f"unknown escape {escape[0]}: use %{{header}} or times such as %Y", template
            )
        return _TIMES[letter]

    def _place(self, row: Sequence[str | None], now: int) -> str:
        stamp = row[-1] if self._time_header else None
        if stamp is not None and stamp.isascii() and stamp.isdecimal():
            with contextlib.suppress(ValueError, OverflowError, OSError):  # a time beyond the calendar's end
                return self._place_at(row, int(stamp))
        return self._place_at(row, now)

    def _place_at(self, row: Sequence[str | None], milliseconds: int) -> str:
        time = self._rounding.down(datetime.fromtimestamp(milliseconds / 1000, self._zone))
        return "".join(
            [
                part if isinstance(part, str) else self._safe(row[part]) if isinstance(part, int) else part(time)
                for part in self._parts
            ]
        )


def shortened(place: str, most: int, reserved: int) -> str:
    """Shorten the names in a path to a file system's limit; a shortened name ends with a digest of the whole.

    :param most: maximum bytes of a name.
    :param reserved: bytes that are appended to the last name.
    """
    *directories, name = place.split("/")
    return "/".join([*(short(each, most) for each in directories), short(name, most - reserved)])


def short(name: str, most: int) -> str:
    """Shorten a name to so many bytes."""
    raw = name.encode()
    if len(raw) <= most:
        return name
    return f"{raw[: most - _DIGEST - 1].decode(errors='ignore')}~{sha256(raw).hexdigest()[:_DIGEST]}"


def _stepped(value: str | None, step: int) -> str | None:
    if value is None or not (value.isascii() and value.isdecimal() and len(value) < 20):
        return None
    return str(int(value) // step * step)


def _safe(value: str | None) -> str:
    """Return a header's value as one part of a path."""
    cleaned = _UNSAFE.sub("_", value or "")
    return _NOTHING if cleaned in ("", ".", "..") else cleaned
