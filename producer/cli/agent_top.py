"""The action ``producer agent top``: the figures of a running agent, once a second."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..text.plural import counted
from ..text.printable import shown
from .agent_client import AgentAwayError, AgentClient, client_of
from .output import say

#: Seconds between two refreshes.
INTERVAL = 1.0
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_SOURCES = ("SOURCE", "TYPE", "STATE", "EVENTS/S", "EVENTS", "LAG", "FAILED PUTS", "DROPPED", "LAST ERROR")
_CHANNELS = ("CHANNEL", "TYPE", "STATE", "EVENTS", "BYTES", "FILL", "OLDEST", "LOST")
_SINKS = ("SINK", "TYPE", "STATE", "EVENTS/S", "EVENTS", "RETRIES", "DEAD LETTERS", "DROPPED", "LAST ERROR")
_STEPS = ((86_400, "d"), (3600, "h"), (60, "min"))
_Figures = Mapping[str, Any]


def run(args: argparse.Namespace) -> int:
    """Show the figures until an interrupt, or once; return the exit code.

    :raises AgentAwayError: no agent answers the first request.
    """
    client = client_of(args)
    before: _Figures = client.status()
    try:
        while True:
            time.sleep(INTERVAL)
            before = _refresh(client, before, once=args.once)
            if args.once:
                return 0
    except KeyboardInterrupt:
        return 0


def _refresh(client: AgentClient, before: _Figures, *, once: bool) -> _Figures:
    """Show the present figures, and return them.

    :raises AgentAwayError: the agent does not answer, and ``once`` is True.
    """
    try:
        now = client.status()
    except AgentAwayError as error:
        if once:
            raise
        _draw([str(error)])
        return before
    lines = list(lines_of(before, now, client.where))
    if once:
        say(*lines)
    else:
        _draw(lines)
    return now


def _draw(lines: Sequence[str]) -> None:
    """Draw over the former lines on a terminal; elsewhere, print the lines."""
    if not sys.stdout.isatty():
        say(*lines, flush=True)
        return
    size = shutil.get_terminal_size()
    cut = [shown(line)[: size.columns - 1] + _REST_OF_LINE for line in lines[: size.lines - 1]]
    print(_HOME + "\n".join(cut) + "\n" + _REST_OF_SCREEN, end="", flush=True)


def lines_of(before: _Figures, now: _Figures, where: str) -> Iterator[str]:
    """Yield the lines of a refresh.

    :param before: earlier figures; rates are those between both.
    :param where: the address of the agent.
    """
    process, seconds = now["process"], max(now["time"] - before["time"], 1e-3)
    cpu = max(0.0, process["cpu_seconds"] - before["process"]["cpu_seconds"]) / seconds
    state = "ready" if now["ready"] else "NOT READY"
    used = f"CPU {100 * cpu:.0f} %, {_bytes(process['resident_bytes'])}"
    yield f"agent {now['agent']} at {where}: {state}, up {_time(now['time'] - now['started'])}, {used}"
    yield from (f"  {reason}" for reason in now["reasons"])
    yield from (f"  note: {note}" for note in now["notes"])
    for head, kind, row_of in (
        (_SOURCES, "sources", _source),
        (_CHANNELS, "channels", _channel),
        (_SINKS, "sinks", _sink),
    ):
        former = {row["name"]: row["counters"] for row in before[kind]}
        yield ""
        yield from _table(head, [row_of(row, former.get(row["name"], row["counters"]), seconds) for row in now[kind]])


def _source(row: _Figures, former: Mapping[str, int], seconds: float) -> Sequence[str]:
    counters = row["counters"]
    rate = _rate("EventAcceptedCount", counters, former, seconds)
    failed = counters["ChannelWriteFail"] + counters["GenericProcessingFail"]
    figures = (rate, _number(counters["EventAcceptedCount"]), _lag(row["lag"] or {}), _number(failed))
    return *_head(row), *figures, _number(counters["EventDroppedCount"]), row["error"] or ""


def _channel(row: _Figures, _former: Mapping[str, int], _seconds: float) -> Sequence[str]:
    oldest = row["oldest_seconds"]
    lost, waiting = row["counters"]["EventLostCount"], (_number(row["events"]), _bytes(row["bytes"]))
    age = "" if oldest is None or not row["events"] else _time(oldest)
    state = "open" if row["open"] else "CLOSED"
    return row["name"], row["type"], state, *waiting, f"{100 * row['fill']:.0f} %", age, _number(lost)


def _sink(row: _Figures, former: Mapping[str, int], seconds: float) -> Sequence[str]:
    counters = row["counters"]
    rate = _rate("EventDrainSuccessCount", counters, former, seconds)
    names = ("EventDrainSuccessCount", "EventWriteFail", "EventRefusedCount", "EventDroppedCount")
    return *_head(row), rate, *(_number(counters.get(name, 0)) for name in names), row["error"] or ""


def _head(row: _Figures) -> Sequence[str]:
    return row["name"], row["type"], row["state"]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield lines with columns as wide as their widest value; the last column is as it is."""
    cells = [head, *(tuple(shown(cell) for cell in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _rate(name: str, now: Mapping[str, int], former: Mapping[str, int], seconds: float) -> str:
    return _number(round(max(0, now.get(name, 0) - former.get(name, 0)) / seconds))  # lower after a restart


def _lag(lag: Mapping[str, float | None]) -> str:
    """Return the lag in the units that the source knows."""
    forms: Mapping[str, Callable[[float], str]] = {"seconds": _time, "bytes": _bytes, "events": _events}
    return ", ".join(form(value) for unit, form in forms.items() if (value := lag.get(unit)) is not None)


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ")


def _events(value: float) -> str:
    return counted(round(value), "event", form=",").replace(",", " ")


def _bytes(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def _time(seconds: float) -> str:
    for size, unit in _STEPS:
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
