"""Mark refused events as dead letters, with the header names of a producer's dead letters.

If an event has a header of such a name, it keeps it, and the mark gets the prefix ``dead_letter_``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from ...runtime.clock import Clock
from ...text.printable import shown
from ..events.batch import EventBatch
from ..events.interfaces import Refusal

_PREFIX = "dead_letter_"
REASON, _SINK = f"{_PREFIX}reason", f"{_PREFIX}sink"
#: Maximum number of characters of a reason.
_MOST_REASON = 2000


class Letter(NamedTuple):
    """Refused events, and their marks as dead letters."""

    batch: EventBatch
    marks: Mapping[str, str]


def marks_of(refusal: Refusal, sink: str, clock: Clock) -> dict[str, str]:
    """Return the marks of events that a sink refused just now."""
    return {
        REASON: shown(refusal.reason)[:_MOST_REASON],
        _SINK: sink,
        "failed_at": datetime.fromtimestamp(clock.time(), UTC).isoformat(timespec="milliseconds"),
        "attempts": str(refusal.attempts),
        "request_id": refusal.request_id,
    }


def marked(batch: EventBatch, marks: Mapping[str, str]) -> EventBatch:
    """Return the events as dead letters."""
    names = {*batch.shared, *batch.columns}
    again = _SINK in names  # it was a dead letter before
    return batch.with_shared({_free(name, names, again=again): value for name, value in marks.items()}).at(None)


def _free(name: str, names: set[str], *, again: bool) -> str:
    prefixed = _PREFIX + name
    if name in (REASON, _SINK) or name not in names:
        return name
    return name if again and prefixed not in names else prefixed
