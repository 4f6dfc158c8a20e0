"""Find the processes that a test has started: all in its session, wherever they are in the tree of processes."""

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int
    command: str


def processes_of(session: int) -> list[Process]:
    """Return the live processes of a session, without zombies.

    The session is the only mark that lasts: Spark's Python daemon makes a group of its own, and gets process 1 as its
    parent when its executor is killed.

    :param session: the pid of the process that was started with ``start_new_session=True``.
    """
    everything = _from_proc() if (_PROC / "self" / "stat").exists() else _from_ps()
    return [process for process in everything if _session(process.pid) == session]


def kill_session(session: int) -> None:
    """End a session's processes, including those that they start meanwhile."""
    while running := processes_of(session):
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _from_proc() -> list[Process]:
    found = []
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # The name in brackets may contain brackets.
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                found.append((state, Process(int(folder.name), int(parent), command)))
    return [process for state, process in found if state not in "ZX"]


def _from_ps() -> list[Process]:
    listing = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,stat=,args="],
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
    )
    lines = [line.split(None, 3) for line in listing.stdout.splitlines()]
    return [
        Process(int(pid), int(parent), " ".join(command))
        for pid, parent, state, *command in lines
        if not state.startswith("Z")
    ]
