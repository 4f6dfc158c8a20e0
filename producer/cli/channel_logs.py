"""What ``producer channel peek`` and ``export`` show: the logs of a channel's events, decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from ..durable.event_format import StoredRecord, UnreadableEventError, read_event
from ..interfaces import Event
from ..wire.read_log_group import Fields, read_record

#: The columns that stand first: the event's number and where its logs are to go.
FIRST = ("__event__", "__project__", "__logstore__", "__time__", "__topic__", "__source__")
#: Headers of a dead letter that say why.
_REASONS = ("error_code", "error_message")
_AT_ONCE = 1000


def logs_of(events: Iterable[Event]) -> Iterator[Fields]:
    """The logs of each event; of one that is not a producer's its headers, and its body as text."""
    for event in events:
        number = {"__event__": str(event.sequence)}
        try:
            record = read_event(event)
            logs = list(read_record(record.record))
        except (UnreadableEventError, ValueError):
            headers = {name: str(value) for name, value in event.headers.items()}
            yield {**number, **headers, "body": bytes(event.body).decode("utf-8", "backslashreplace")}
        else:
            common = number | _target(record) | _reasons(event)
            for time, fields in logs:
                yield {**common, "__time__": time, **fields}


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
