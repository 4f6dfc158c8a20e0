"""Decode a channel's events into logs, for ``producer channel peek`` and ``export``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from ..durable.event_format import StoredRecord, read_event
from ..model.interfaces import Event
from ..wire.read_log_group import Fields, read_record

#: The first columns: the event's number and the target of its logs.
FIRST = ("__event__", "__project__", "__logstore__", "__time__", "__topic__", "__source__")
#: A header of an agent's batches.
OF_AN_AGENT = "~count"
#: Headers of a dead letter with the reason.
_REASONS = ("error_code", "error_message")
_AT_ONCE = 1000


def logs_of(events: Iterable[Event]) -> Iterator[Fields]:
    """Yield the logs of each event. An agent's batch, or an event of another program, yields headers and a body."""
    for event in events:
        number = {"__event__": str(event.sequence)}
        try:
            yield from [number | fields for fields in _decoded(event)]
        except ValueError:  # an event of another program, in its own format
            yield number | _shown(event.headers, event.body)


def _decoded(event: Event) -> Iterator[Fields]:
    """Yield the logs of one event.

    :raises ValueError: the event is damaged, or neither a producer nor an agent wrote it.
    """
    if OF_AN_AGENT in event.headers:
        from ..agent.events.event_format import read_batch  # imports the whole agent

        yield from (_shown(headers, body) for headers, body in read_batch(event).events())
        return
    record = read_event(event)
    common = _target(record) | _reasons(event)
    for time, fields in read_record(bytes(record.record)):
        yield {**common, "__time__": time, **fields}


def _shown(headers: Mapping[str, str | None], body: bytes) -> Fields:
    texts = {name: value for name, value in headers.items() if value is not None}
    return {**texts, "body": bytes(body).decode("utf-8", "backslashreplace")}


def _target(record: StoredRecord) -> Fields:
    key = record.key
    tags = {f"__tag__:{name}": value for name, value in key.tags}
    target = {"__project__": key.project, "__logstore__": key.logstore, "__topic__": key.topic}
    return {**target, "__source__": key.source, **tags}


def _reasons(event: Event) -> Fields:
    return {f"__{name}__": str(event.headers[name]) for name in _REASONS if name in event.headers}


def batched(rows: Iterator[Fields]) -> Iterator[list[Fields]]:
    """Yield the rows in lists, to write them quickly."""
    while rows_now := list(islice(rows, _AT_ONCE)):
        yield rows_now
