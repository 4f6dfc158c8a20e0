"""Limits: the capacity of a memory channel, and the size at which an event counts.

An event counts its headers and body in UTF-8, without Python's overhead. It counts at least its body plus the share of
``byte_capacity_buffer_percentage`` for headers. So with 20 %, bodies alone fill at most 80 % of ``byte_capacity``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..model.errors import ConfigError, InvalidArgumentError
from ..model.interfaces import Event
from ..model.options import check_all, option

#: Default limit on the puts, or takes, of one transaction, as in Flume's file channel.
TRANSACTION_CAPACITY = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a memory channel, checked at construction.

    :ivar capacity: number of events.
    :ivar transaction_capacity: number of puts, or takes, of one transaction.
    :ivar byte_capacity: bytes; None or 0 for no limit.
    :ivar keep_alive: default wait in seconds.
    :ivar byte_capacity_buffer_percentage: the share of ``byte_capacity`` for headers.
    :ivar admit_larger: True to admit a transaction larger than ``byte_capacity`` when the channel is empty.
    """

    capacity: int = option(least=1, unit="events")
    transaction_capacity: int = option(least=1, unit="events")
    byte_capacity: int | None = option(least=0, unit="bytes")
    keep_alive: float = option(least=0, unit="seconds")
    byte_capacity_buffer_percentage: int = option(20, least=0, most=99)
    admit_larger: bool = option(False)

    def __post_init__(self) -> None:
        check_all(self)
        if self.transaction_capacity > self.capacity:
            rule = f"must not be above capacity ({self.capacity})"
            raise ConfigError("transaction_capacity", rule, self.transaction_capacity)

    def hold(self, events: int, size: int) -> bool:
        """True if this many events and bytes are within the limits."""
        return events <= self.capacity and (not self.byte_capacity or size <= self.byte_capacity)

    def could_hold(self, events: int, size: int) -> bool:
        """True if they would fit into an empty channel."""
        return self.hold(events, 0 if self.admit_larger else size)

    def allow(self, used: int, events: int, used_bytes: int, size: int) -> bool:
        """True if they may be added to what is in use; a count that does not grow is not checked."""
        if events > 0 and used + events > self.capacity:
            return False
        most = self.byte_capacity
        return size <= 0 or not most or used_bytes + size <= most or (self.admit_larger and not used_bytes)


def default_transaction_capacity(capacity: object) -> int:
    """Return the ``transaction_capacity`` of a channel whose user gave none."""
    return min(TRANSACTION_CAPACITY, capacity) if isinstance(capacity, int) else TRANSACTION_CAPACITY


def event_sizes(events: Iterable[Event], buffer_percentage: int) -> list[int]:
    """Return the size of each event, bytes. Headers shared by consecutive events are measured once.

    :raises InvalidArgumentError: not an event, or not of text and bytes.
    """
    sizes, share, headers, more = [], 100 - buffer_percentage, None, 0
    try:
        for event in events:
            body = event.body
            size = len(body)
            if body.__class__ is not bytes:
                raise InvalidArgumentError(f"put: the body of an event must be bytes, got {type(body).__name__}")
            if event.headers is not headers:
                headers = event.headers
                more = _headers_size(headers) if headers else 0
            real, least = size + more, -(-100 * size // share)
            sizes.append(real if real > least else least)
    except (AttributeError, TypeError) as error:
        raise InvalidArgumentError(f"put: needs Events with text headers and a bytes body: {error}") from error
    return sizes


def _headers_size(headers: Mapping[str, str | None]) -> int:
    values: Iterable[Any] = headers.values()
    try:
        text = "".join(headers) + "".join(values)  # most have no None
    except TypeError:
        text = "".join([*headers, *[value for value in headers.values() if value is not None]])
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def first_within(sizes: Iterable[int], most: int) -> int:
    """Return how many of the first sizes add up to at most ``most``; at least one."""
    total = number = 0
    for size in sizes:
        total += size
        if number and total > most:
            break
        number += 1
    return number
