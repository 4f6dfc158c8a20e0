"""The action ``producer agent top``: the figures of a running agent, once a second."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator, Sequence

from ..agent.monitoring.tables import Figures, Table, bytes_text, tables, time_text
from ..text.printable import shown
from .agent_client import AgentAwayError, AgentClient, client_of
from .output import say

#: Seconds between two refreshes.
INTERVAL = 1.0
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def run(args: argparse.Namespace) -> int:
    """Show the figures until an interrupt, or once; return the exit code.

    :raises AgentAwayError: no agent answers the first request.
    """
    client = client_of(args)
    before: Figures = client.status()
    try:
        while True:
            time.sleep(INTERVAL)
            before = _refresh(client, before, once=args.once)
            if args.once:
                return 0
    except KeyboardInterrupt:
        return 0


def _refresh(client: AgentClient, before: Figures, *, once: bool) -> Figures:
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


def lines_of(before: Figures, now: Figures, where: str) -> Iterator[str]:
    """Yield the lines of a refresh.

    :param before: earlier figures; rates are those between both.
    :param where: the address of the agent.
    """
    process, seconds = now["process"], max(now["time"] - before["time"], 1e-3)
    cpu = max(0.0, process["cpu_seconds"] - before["process"]["cpu_seconds"]) / seconds
    state = "ready" if now["ready"] else "NOT READY"
    used = f"CPU {100 * cpu:.0f} %, {bytes_text(process['resident_bytes'])}"
    yield f"agent {now['agent']} at {where}: {state}, up {time_text(now['time'] - now['started'])}, {used}"
    yield from (f"  {reason}" for reason in now["reasons"])
    yield from (f"  note: {note}" for note in now["notes"])
    for table in tables(before, now):
        yield ""
        yield from _lines(table)


def _lines(table: Table) -> Iterator[str]:
    """Yield lines with columns as wide as their widest value; the last column is as it is."""
    cells = [tuple(map(str.upper, table.head)), *(tuple(map(shown, row)) for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
