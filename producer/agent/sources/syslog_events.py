"""Messages of syslog as events: RFC 5424, RFC 3164, and RFC 3164 with an ISO 8601 time.

Headers are Flume's: ``Facility``, ``Severity``, ``timestamp`` (milliseconds) and ``host``; the body is what stands
behind the host. ``flume.syslog.status`` is ``Invalid`` for a message without a priority, whose body is all of it, and
``Incomplete`` for one of which bytes are missing.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate

from ...clock import Clock
from ..batch import Column, EventBatch

STATUS = "flume.syslog.status"
#: What may stay in bodies, in the order in which it stands there.
FIELDS = ("priority", "version", "timestamp", "hostname")
_NONE = (None,) * 5

_ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
# Possessive quantifiers keep the match linear in the length of the message.
_MESSAGE = re.compile(
    r"<(\d{1,3}+)>(?:([1-9]\d?) (?=\d{4}-|- ))?"
    rf"(?:((?(2)(?:{_ISO}|-)|(?:[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d|{_ISO}))) (\S++)(?: |\Z))?(.*+)",
    re.DOTALL | re.ASCII,
)
_PRIORITIES = {str(number): (str(number // 8), str(number % 8)) for number in range(192)}
_MONTHS = {"JanFebMarAprMayJunJulAugSepOctNovDec"[3 * at : 3 * at + 3]: at + 1 for at in range(12)}


class SyslogParser:
    """Makes batches of messages.

    :param keep: fields that stay in bodies: of :data:`FIELDS`.
    """

    def __init__(self, keep: Sequence[str], clock: Clock) -> None:
        self._keep, self._clock = tuple(field in keep for field in FIELDS), clock
        self._milliseconds = lru_cache(4096)(_milliseconds)  # messages share their seconds

    def batch(
        self,
        messages: Sequence[bytes],
        cut: Sequence[int] = (),
        shared: Mapping[str, str] = {},
        columns: Mapping[str, Column] = {},
    ) -> EventBatch:
        """The events of messages.

        :param cut: the numbers of those of which bytes are missing.
        :param shared: further headers.
        :param columns: further headers, of each.
        """
        texts = [message.decode(errors="surrogateescape") for message in messages]
        found = [match.groups() if match else _NONE for match in map(_MESSAGE.match, texts)]
        priorities, _, times, hosts, rests = zip(*found, strict=True)
        codes = [_PRIORITIES.get(each) or _code(each) for each in priorities]
        headers: dict[str, Column] = {
            "Facility": [code and code[0] for code in codes],
            "Severity": [code and code[1] for code in codes],
            "timestamp": self._times(times),
            "host": [None if host == "-" else host for host in hosts],
        }
        if cut or None in codes:
            status = [None if code else "Invalid" for code in codes]
            for number in cut:
                status[number] = "Incomplete"
            headers[STATUS] = status
        bodies = rests if not any(self._keep) else [self._kept(fields) for fields in found]
        if None in codes:
            bodies = [body if code else text for body, code, text in zip(bodies, codes, texts, strict=True)]
        return _batch(bodies, {**headers, **columns}, shared)

    def _times(self, times: Sequence[str | None]) -> Column:
        day = datetime.fromtimestamp(self._clock.time(), UTC) + timedelta(days=1)
        key = (day.year, day.month, day.day)
        return [self._milliseconds(text, key) if text else None for text in times]

    def _kept(self, fields: Sequence[str | None]) -> str:
        priority, version, time, host, rest = fields
        parts = (priority and f"<{priority}>", version and f"{version} ", time and f"{time} ", host and f"{host} ")
        return "".join([part for part, keep in zip(parts, self._keep, strict=True) if part and keep]) + (rest or "")


def _code(priority: str | None) -> tuple[str, str] | None:
    """Facility and severity of a priority with leading zeros; None of one that there is not."""
    return None if priority is None else _PRIORITIES.get(str(int(priority)))


def _milliseconds(text: str, tomorrow: tuple[int, int, int]) -> str | None:
    """Of a time without a zone, this machine's; without a year, the last time that this was."""
    try:
        if text[0].isdigit():
            return str(round(datetime.fromisoformat(text.replace(",", ".")).timestamp() * 1000))
        month, day = _MONTHS[text[:3]], int(text[4:6])
        year = tomorrow[0] - ((month, day) > tomorrow[1:])
        return str(
            int(datetime(year, month, day, int(text[7:9]), int(text[10:12]), int(text[13:15])).timestamp()) * 1000
        )
    except (ValueError, KeyError, OverflowError, OSError):
        return None  # a dash, or a day that there is not


def _batch(bodies: Sequence[str], headers: Mapping[str, Column], shared: Mapping[str, str]) -> EventBatch:
    """Headers of one value are shared; those without any are left out."""
    same, columns = dict(shared), {}
    for name, column in headers.items():
        first = column[0]
        if column.count(first) < len(column):
            columns[name] = column
        elif first is not None:
            same[name] = first
    text = "".join(bodies)
    if text.isascii():
        return EventBatch(text.encode(), array("Q", accumulate(map(len, bodies))), len(bodies), same, columns)
    return EventBatch.of_bodies([body.encode(errors="surrogateescape") for body in bodies], same, columns)
