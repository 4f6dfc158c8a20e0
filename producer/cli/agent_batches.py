"""Report the batches of events in an agent's channel, for ``producer channel``."""

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
    """The contents of an agent's channel.

    :ivar batches: the number of batches.
    :ivar events: the number of events in all batches.
    :ivar unreadable: the error by the number of each batch that cannot be decoded; the agent delivers it unchanged.
    :ivar waiting: the number of events of each source that keeps read offsets.
    :ivar positions: the read offset behind the waiting batches, by "source/file" or "source/partition".
    :ivar notes: the error of the channel's notes; empty if they can be read.
    """

    batches: int = 0
    events: int = 0
    unreadable: dict[int, str] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    notes: str = ""


def inspect_batches(directory: str, events: Iterable[Event]) -> AgentReport | None:
    """Return a report on a channel, or None if it has no batches of an agent.

    :param events: the channel's events.
    """
    report = AgentReport()
    report.notes = _error_of_notes(Path(directory))
    for event in events:
        if OF_AN_AGENT not in event.headers:
            continue
        report.batches += 1
        try:
            _count(report, event)
        except ValueError as error:
            report.unreadable[event.sequence or 0] = str(error)
    return report if report.batches else None


def summary(report: AgentReport, of: str = "") -> str:
    """Return the numbers of batches and events, in words."""
    return f"{counted(report.batches, f'batch{of}', f'batches{of}')} with {counted(report.events, 'event')}"


def lines_of(report: AgentReport) -> list[str]:
    """Return the report's lines."""
    lines = [f"agent       {summary(report)}"]
    for source, count in sorted(report.waiting.items()):
        lines.append(f"  source {source}: {counted(count, 'event waits', 'events wait')}")
    return lines


def damage(report: AgentReport) -> list[str]:
    """Return a line for each unreadable batch, and one if the notes are unreadable."""
    lines = [
        f"unreadable: event {number} is marked as a batch but is not one ({why}); an agent delivers it unchanged"
        for number, why in report.unreadable.items()
    ]
    return [*lines, f"notes: {report.notes}"] if report.notes else lines


def _count(report: AgentReport, event: Event) -> None:
    from ..agent.events.event_format import (  # imports the whole agent
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


def _error_of_notes(directory: Path) -> str:
    """Return the error that a channel's notes cause, or an empty string."""
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
