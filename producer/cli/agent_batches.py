"""What ``producer channel`` says of an agent's channel, whose events are batches."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from ..channels.file.store.notes import NOTES_NAME, copy_notes
from ..model.interfaces import Event
from ..text.plural import counted
from .channel_logs import OF_AN_AGENT


@dataclass(slots=True)
class AgentReport:
    """What an agent has in a channel.

    :ivar batches: of events.
    :ivar events: in all of them.
    :ivar unreadable: by the number of a batch of which nothing can be made, why; it is delivered as it is.
    :ivar waiting: events by the source that put them, for those that can read again.
    :ivar positions: up to where the batches that wait were read, by the name of the source, a slash, and the name of
        the file or partition.
    :ivar notes: what is wrong with the channel's notes; empty if nothing is.
    """

    batches: int = 0
    events: int = 0
    unreadable: dict[int, str] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    notes: str = ""


def look_at_batches(directory: str, events: Iterable[Event]) -> AgentReport | None:
    """What is in a channel; None if it is not an agent's.

    :param events: that are in it.
    """
    report = AgentReport()
    report.notes = _trouble_of_notes(Path(directory))
    for event in events:
        if OF_AN_AGENT not in event.headers:
            continue
        report.batches += 1
        try:
            _count(report, event)
        except ValueError as error:
            report.unreadable[event.sequence or 0] = str(error)
    return report if report.batches else None


def sums(report: AgentReport, of: str = "") -> str:
    """How much there is of it, in words."""
    return f"{counted(report.batches, f'batch{of}', f'batches{of}')} with {counted(report.events, 'event')}"


def told(report: AgentReport) -> list[str]:
    """In lines."""
    lines = [f"agent       {sums(report)}"]
    for source, count in sorted(report.waiting.items()):
        lines.append(f"  source {source}: {counted(count, 'event waits', 'events wait')}")
    return lines


def damage(report: AgentReport) -> list[str]:
    """What is wrong, in lines."""
    lines = [
        f"unreadable: event {number} is no batch, though it says so ({why}): an agent delivers it as it is"
        for number, why in report.unreadable.items()
    ]
    return [*lines, f"notes: {report.notes}"] if report.notes else lines


def _count(report: AgentReport, event: Event) -> None:
    from ..agent.events.event_format import (  # all of the agent comes with it
        UnreadableBatchError,
        count_of,
        position_of,
        read_batch,
    )

    position, count, found = position_of(event), count_of(event), len(read_batch(event).bodies())
    if count != found:
        raise UnreadableBatchError(f"it has {counted(found, 'event')}, not {count}")
    report.events += count
    if position is not None:
        source = _source_of(position.name)
        report.waiting[source] = count + report.waiting.get(source, 0)
        report.positions[position.name] = max(position.end, report.positions.get(position.name, 0))


def _source_of(name: str) -> str:
    return name.partition("/")[0]


def _trouble_of_notes(directory: Path) -> str:
    """What is wrong with the notes of a channel; empty if nothing is."""
    if not (directory / NOTES_NAME).exists():
        return ""
    with tempfile.TemporaryDirectory() as place:
        try:
            copy_notes(directory, Path(place))
            with closing(sqlite3.connect(Path(place) / NOTES_NAME)) as connection:
                connection.execute("SELECT name, value FROM notes").fetchall()
                return ""
        except (sqlite3.Error, OSError) as error:
            return f"{directory / NOTES_NAME} cannot be read: {error}"
