"""A session's processes are found and ended, wherever they are in the tree of processes."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.waiting import eventually

from . import processes
from .processes import kill_session, processes_of

# A child in a group of its own whose parent ends, like Spark's Python daemon after the death of its executor.
_ORPHANS = """
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        os.setpgid(0, 0)
        time.sleep(600)
    os._exit(0)
time.sleep(600)
"""


@pytest.fixture
def leader() -> Iterator[subprocess.Popen[bytes]]:
    """Start the leader of a session of two processes, itself and an orphan."""
    process = subprocess.Popen([sys.executable, "-c", _ORPHANS], start_new_session=True)
    try:
        eventually(lambda: len(processes_of(process.pid)) == 2 and is_apart(orphans(process.pid)))
        yield process
    finally:
        kill_session(process.pid)
        process.wait()


def is_apart(found: list[int]) -> bool:
    return bool(found) and os.getpgid(found[0]) == found[0]


def orphans(session: int) -> list[int]:
    found = processes_of(session)
    mine = {process.pid for process in found}
    return [process.pid for process in found if process.parent not in {*mine, os.getpid()}]


def test_orphan_in_a_group_of_its_own_is_found_and_ended(leader: subprocess.Popen[bytes]) -> None:
    """An orphan in a group of its own is found by its session, and ended."""
    orphan = orphans(leader.pid)[0]
    assert os.getpgid(orphan) == orphan
    kill_session(leader.pid)
    assert processes_of(leader.pid) == []


def test_ps_finds_the_same_processes_where_there_is_no_proc(
    leader: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``ps`` finds the same processes where there is no /proc."""
    found = sorted(process.pid for process in processes_of(leader.pid))
    monkeypatch.setattr(processes, "_from_proc", processes._from_ps)
    assert sorted(process.pid for process in processes_of(leader.pid)) == found
