"""What ``producer channel peek`` and ``export`` show: the logs of a channel's events, decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from ..durable.event_format import StoredRecord, read_event
from ..model.interfaces import Event
from ..wire.read_log_group import Fields, read_record

#: The columns that stand first: the event's number and where its logs are to go.
FIRST = ("__event__", "__project__", "__logstore__", "__time__", "__topic__", "__source__")
#: A header of the agent's batches (producer/agent/event_format.py).
OF_AN_AGENT = "~count"
#: Headers of a dead letter that say why.
_REASONS = ("error_code", "error_message")
_AT_ONCE = 1000


def logs_of(events: Iterable[Event]) -> Iterator[Fields]:
    """The logs of each event; an agent's are batches of events, with headers and a body, as is any other's."""
    for event in events:
        number = {"__event__": str(event.sequence)}
        try:
            yield from [number | fields for fields in _decoded(event)]
        except ValueError:  # an event that holds what its maker alone can read
            yield number | _shown(event.headers, event.body)


def _decoded(event: Event) -> Iterator[Fields]:
    """
    :raises ValueError: the event is not a producer's, or damaged.
    """
    if OF_AN_AGENT in event.headers:
        from ..agent.events.event_format import read_batch  # all of the agent comes with it

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
    """So many at once that a file is written quickly."""
    while rows_now := list(islice(rows, _AT_ONCE)):
        yield rows_now
