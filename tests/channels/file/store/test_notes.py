"""Notes: on the disk when a call returns, removed with the events that they refer to."""

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from producer.channels.file.store.notes import FileNotes
from producer.model.errors import ChannelIOError
from producer.runtime.forks import hold_while_it_lives
from tests.support.held_locks import AskedFor
from tests.support.waiting import Call, passed


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[FileNotes]:
    notes = FileNotes(str(tmp_path), "c")
    yield notes
    notes.close()


def test_a_note_is_on_the_disk_when_the_call_returns(notes: FileNotes) -> None:
    """SQLite syncs each commit (2 is FULL)."""
    notes.write("a", b"1", -1)
    assert notes._do(lambda connection: connection.execute("PRAGMA synchronous").fetchone(), make=False) == (2,)
    assert notes._do(lambda connection: connection.execute("PRAGMA journal_mode").fetchone(), make=False) == ("wal",)


def test_a_note_is_there_after_a_restart_with_its_newest_value(notes: FileNotes, tmp_path: Path) -> None:
    """A note is there after a restart, with its newest value."""
    notes.write_many([("a", b"1", -1), ("b", b"2", -1)])
    notes.write("a", b"3", -1)
    notes.close()
    following = FileNotes(str(tmp_path), "c")
    assert following.items("") == {"a": b"3", "b": b"2"}
    following.close()


def test_notes_of_events_that_are_lost_are_forgotten(notes: FileNotes, caplog: pytest.LogCaptureFixture) -> None:
    """Notes of lost events are removed, and others stay."""
    notes.write_many([("kept", b"", 4), ("lost", b"", 5), ("of another", b"", -1)])
    notes.forget_lost(5)
    assert set(notes.items("")) == {"kept", "of another"}
    assert "1 notes about them are removed" in caplog.text


def test_pruning_removes_the_longest_unused_notes_except_those_in_use(notes: FileNotes) -> None:
    """Pruning removes the longest unused notes, except those in use."""
    for name in "abcda":
        notes.write(name, b"", -1)
    notes.prune(2, ["b"])
    assert set(notes.items("")) == {"a", "b"}


def test_notes_in_use_by_another_owner_raise_an_error(
    notes: FileNotes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notes in use by another owner raise an error that says so."""
    notes.write("a", b"", -1)
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0))
    following = FileNotes(str(tmp_path), "c")
    with pytest.raises(ChannelIOError, match="in use: the previous run has not ended") as told:
        following.read("a")
    assert "disk" not in str(told.value)
    following.close()


_FORKS = """
import os, sys
from producer.channels.file.store.notes import FileNotes

notes = FileNotes(sys.argv[1], "c")
notes.write("before", b"", -1)
if os.fork() == 0:
    if sys.argv[2] == "drops":
        notes = None
    sys.exit(0)
assert os.wait()[1] == 0
notes.write("after", b"", -1)
os._exit(0)
"""


@pytest.mark.parametrize("child", ["drops", "ends"])
def test_a_forked_child_that_drops_its_copy_or_ends_takes_no_note_away(
    tmp_path: Path, notes: FileNotes, child: str
) -> None:
    """SQLite's close in a child would remove the file with the newest notes, and the parent's later ones with it."""
    subprocess.run([sys.executable, "-c", _FORKS, str(tmp_path), child], check=True, timeout=60)
    assert set(notes.items("")) == {"before", "after"}


def test_a_fork_waits_for_a_call_of_sqlite(tmp_path: Path) -> None:
    """A child that found SQLite's own locks taken would wait forever as soon as it used SQLite."""
    inside, forking, order = threading.Event(), threading.Event(), list[str]()
    asked = AskedFor(forking.set)
    hold_while_it_lives(asked)
    notes = FileNotes(str(tmp_path), "c")

    def job(_: sqlite3.Connection) -> None:
        inside.set()
        passed(forking)
        order.append("committed")

    writing = Call(lambda: notes._do(job, make=True))
    passed(inside)
    child = os.fork()
    if child == 0:
        os._exit(len(order))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    writing.result()
    notes.close()
