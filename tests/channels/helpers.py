"""Helpers to put and take in one call."""

from collections.abc import Iterable, Sequence
from typing import Any

from producer.channels import Event
from producer.model.interfaces import Channel, Transaction


def events(bodies: Iterable[object]) -> list[Event]:
    """Return events without headers, with these texts as bodies."""
    return [Event({}, str(body).encode()) for body in bodies]


def bodies(taken: Sequence[Event]) -> list[str]:
    return [event.body.decode() for event in taken]


def opened(channel: Channel) -> Transaction:
    transaction = channel.transaction()
    transaction.begin()
    return transaction


def put(channel: Channel, *what: object) -> int | None:
    """Put and commit in one transaction; return the last sequence number."""
    with channel.transaction() as transaction:
        transaction.put_many(events(what))
    return transaction.last_sequence


def take(channel: Channel, count: int = 1, **options: Any) -> list[str]:
    """Take and commit in one transaction, by default without waiting; return the bodies."""
    with channel.transaction() as transaction:
        return bodies(transaction.take(count, **{"timeout": 0.0, **options}))


def drained(channel: Channel) -> list[str]:
    result: list[str] = []
    while got := take(channel, 100):
        result += got
    return result
