"""Format an agent's figures as tables, for the page and ``producer agent top``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...text.plural import counted

Figures = Mapping[str, Any]
_SOURCES = ("Source", "Type", "State", "Events/s", "Events", "Lag", "Failed puts", "Dropped", "Last error")
_CHANNELS = ("Channel", "Type", "State", "Events", "Bytes", "Fill", "Oldest", "Lost")
_SINKS = ("Sink", "Type", "State", "Events/s", "Events", "Retries", "Dead letters", "Dropped", "Last error")
_COUNTED = {
    "sources": "EventAcceptedCount",
    "channels": "EventTakeSuccessCount",
    "sinks": "EventDrainSuccessCount",
}
_STEPS = ((86_400, "d"), (3600, "h"), (60, "min"))


class Table(NamedTuple):
    """A table of components.

    :ivar head: the titles of the columns.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def tables(before: Figures, now: Figures) -> Iterator[Table]:
    """Yield the tables of sources, channels and sinks.

    :param before: earlier figures, for rates; ``now`` to show no rates.
    """
    for kind, head, row_of in (
        ("sources", _SOURCES, _source),
        ("channels", _CHANNELS, _channel),
        ("sinks", _SINKS, _sink),
    ):
        found = rates(kind, before, now)
        yield Table(head, [row_of(row, found[row["name"]]) for row in now[kind]])


def rates(kind: str, before: Figures, now: Figures) -> Mapping[str, str]:
    """Return the events per second of the components of a kind, by name; empty texts if ``before`` is ``now``."""
    seconds, name = now["time"] - before["time"], _COUNTED[kind]
    if before is now:
        return {row["name"]: "" for row in now[kind]}
    former = {row["name"]: row["counters"].get(name, 0) for row in before[kind]}
    found = {}
    for row in now[kind]:
        count = row["counters"].get(name, 0)
        passed = max(0, count - former.get(row["name"], count))  # lower after a restart
        found[row["name"]] = _number(round(passed / max(seconds, 1e-3)))
    return found


def state_of(row: Figures) -> str:
    """Return the state of a component."""
    return ("open" if row["open"] else "CLOSED") if "open" in row else str(row["state"])


def lag_of(row: Figures) -> str:
    """Return the lag of a source, in each unit that the source reports."""
    forms: Mapping[str, Callable[[float], str]] = {"seconds": time_text, "bytes": bytes_text, "events": _events}
    lag = row["lag"] or {}
    return ", ".join(form(value) for unit, form in forms.items() if (value := lag.get(unit)) is not None)


def waiting(row: Figures) -> Sequence[str]:
    """Return the number of events that wait in a channel, their bytes, the fill level and the age of the oldest."""
    oldest = row["oldest_seconds"]
    age = "" if oldest is None or not row["events"] else time_text(oldest)
    return _number(row["events"]), bytes_text(row["bytes"]), f"{100 * row['fill']:.0f} %", age


def _source(row: Figures, rate: str) -> Sequence[str]:
    counters = row["counters"]
    failed = counters["ChannelWriteFail"] + counters["GenericProcessingFail"]
    numbers = (_number(counters["EventAcceptedCount"]), lag_of(row), _number(failed))
    return *_head(row), rate, *numbers, _number(counters["EventDroppedCount"]), row["error"] or ""


def _channel(row: Figures, _rate: str) -> Sequence[str]:
    return *_head(row), *waiting(row), _number(row["counters"]["EventLostCount"])


def _sink(row: Figures, rate: str) -> Sequence[str]:
    names = ("EventDrainSuccessCount", "EventWriteFail", "EventRefusedCount", "EventDroppedCount")
    return *_head(row), rate, *(_number(row["counters"].get(name, 0)) for name in names), row["error"] or ""


def _head(row: Figures) -> Sequence[str]:
    return row["name"], row["type"], state_of(row)


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ")


def _events(value: float) -> str:
    return counted(round(value), "event", form=",").replace(",", " ")


def bytes_text(value: float) -> str:
    """Return a number of bytes with a unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def time_text(seconds: float) -> str:
    """Return a duration with a unit."""
    for size, unit in _STEPS:
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
