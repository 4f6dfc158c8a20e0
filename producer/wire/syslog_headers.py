"""Reads the headers of many syslog messages, by the grammar of :mod:`.syslog`.

``_syslog.pyx`` reads all of them at once; without it, they are read one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from .splitters import split_headers
from .syslog import is_priority, match_header
from .text_column import TextColumn


class SyslogHeaders(NamedTuple):
    """The headers of messages, in order; None for a missing value.

    :ivar priorities: the priorities, without leading zeros.
    :ivar versions: the versions of RFC 5424.
    :ivar times: the times, as they were sent.
    :ivar hosts: the hosts.
    :ivar rests: the concatenated texts after the host; of a message without a priority, the whole message.
    :ivar ends: the end of each of these texts.
    """

    priorities: Sequence[str | None]
    versions: Sequence[str | None]
    times: Sequence[str | None]
    hosts: Sequence[str | None]
    rests: bytes
    ends: array[int]


def headers_of(messages: Sequence[bytes]) -> SyslogHeaders:
    """Return the headers of messages, which may hold any bytes."""
    return _one_by_one(messages) if split_headers is None else _at_once(messages)


def _at_once(messages: Sequence[bytes]) -> SyslogHeaders:
    assert split_headers is not None  # noqa: S101  # only called with native code
    offsets = array("i", accumulate(map(len, messages), initial=0))
    *fields, rest = split_headers(memoryview(offsets).cast("B"), b"".join(messages)).columns.values()
    priorities, versions, times, hosts = map(_texts, fields)
    ends = array("Q", accumulate(array("I", rest.sizes)))
    return SyslogHeaders(priorities, versions, times, hosts, rest.data, ends)


def _texts(column: TextColumn) -> list[str | None]:
    if column.data.isascii():
        return column.texts()
    return [None if value is None else value.decode(errors="surrogateescape") for value in column.values()]


def _one_by_one(messages: Sequence[bytes]) -> SyslogHeaders:
    rows = [_row(message.decode(errors="surrogateescape")) for message in messages]
    priorities, versions, times, hosts, rests = zip(*rows, strict=True)
    bodies = [rest.encode(errors="surrogateescape") for rest in rests]
    return SyslogHeaders(priorities, versions, times, hosts, b"".join(bodies), array("Q", accumulate(map(len, bodies))))


def _row(text: str) -> tuple[str | None, str | None, str | None, str | None, str]:
    found = match_header(text)
    if found is None or not is_priority(found[1]):
        return None, None, None, None, text
    priority, *fields, rest = found.groups()
    version, time, host = [None if field == "-" else field for field in fields]
    return str(int(priority)), version, time, host, rest
