"""Conversion of syslog messages, as :mod:`producer.wire.syslog` reads them, into events.

Headers are Flume's: ``Facility``, ``Severity``, ``timestamp`` (milliseconds) and ``host``. The body is the text after
the host. ``flume.syslog.status`` is ``Invalid`` for a message without a priority, whose body is the whole message, and
``Incomplete`` for a truncated one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise

from ...runtime.clock import Clock
from ...wire.syslog import facility_and_severity
from ...wire.syslog_headers import SyslogHeaders, headers_of
from ...wire.times import AHEAD, NANOS, moment_of, without_fraction
from ..events.batch import Column, EventBatch

STATUS = "flume.syslog.status"
#: Fields that may stay in bodies, in their order.
FIELDS = ("priority", "version", "timestamp", "hostname")
_CODES = {str(number): facility_and_severity(str(number)) for number in range(192)}
_DAY = 86_400


class SyslogParser:
    """Converter of messages into batches.

    :param keep: the fields of :data:`FIELDS` that stay in bodies.
    """

    def __init__(self, keep: Sequence[str], clock: Clock) -> None:
        self._keep, self._clock = tuple(field in keep for field in FIELDS), clock
        # Many messages have the same time, or at least the same second.
        self._times_seen, self._seconds_seen = lru_cache(4096)(self._milliseconds), lru_cache(4096)(_seconds)

    def batch(
        self,
        messages: Sequence[bytes],
        cut: Sequence[int] = (),
        shared: Mapping[str, str] = {},
        columns: Mapping[str, Column] = {},
    ) -> EventBatch:
        """Return the events of messages.

        :param cut: the indexes of truncated messages.
        :param shared: further headers of all messages.
        :param columns: further headers with a value for each message.
        """
        found = headers_of(messages)
        codes = [None if each is None else _CODES[each] for each in found.priorities]
        headers: dict[str, Column] = {
            "Facility": [code and code[0] for code in codes],
            "Severity": [code and code[1] for code in codes],
            "timestamp": self._times(found.times),
            "host": found.hosts,
        }
        if cut or None in codes:
            status = [None if code else "Invalid" for code in codes]
            for number in cut:
                status[number] = "Incomplete"
            headers[STATUS] = status
        same, several = _divided({**headers, **columns})
        if any(self._keep):
            return EventBatch.of_bodies(list(self._kept(found)), {**shared, **same}, several)
        return EventBatch(found.rests, found.ends, len(messages), {**shared, **same}, several)

    def _times(self, times: Sequence[str | None]) -> Column:
        day = int(self._clock.time() // _DAY)
        return [self._times_seen(text, day) if text else None for text in times]

    def _milliseconds(self, text: str, day: int) -> str | None:
        whole, fraction = without_fraction(text)
        second = self._seconds_seen(whole, day)
        return None if second is None else str(second * 1000 + int(fraction[:3].ljust(3, "0")))

    def _kept(self, found: SyslogHeaders) -> Iterator[bytes]:
        """Yield bodies that begin with the kept fields."""
        forms = ("<{}>", "{} ", "{} ", "{} ")
        for number, (start, end) in enumerate(pairwise([0, *found.ends])):
            parts = zip(self._keep, forms, [column[number] for column in found[: len(forms)]], strict=True)
            front = "".join([form.format(text) for keep, form, text in parts if keep and text is not None])
            yield front.encode(errors="surrogateescape") + found.rests[start:end]


def _seconds(text: str, day: int) -> int | None:
    """Return the epoch second of a time.

    Without a zone it is local time. Without a year it is the latest such time up to one day ahead, since a sender's
    clock may be fast.
    """
    moment = moment_of(text, datetime.astimezone, datetime.fromtimestamp((day + 1) * _DAY, UTC) + AHEAD)
    return None if moment is None else moment // NANOS


def _divided(headers: Mapping[str, Column]) -> tuple[dict[str, str], dict[str, Column]]:
    """Divide headers into those with one value and those with several; drop those without a value."""
    same: dict[str, str] = {}
    several: dict[str, Column] = {}
    for name, column in headers.items():
        first = column[0]
        if column.count(first) < len(column):
            several[name] = column
        elif first is not None:
            same[name] = first
    return same, several
