"""Many files, many rotations, and network file systems with stale handles."""

import errno
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from producer.channels.file.store.notes import FileNotes
from producer.runtime.clock import Stop
from tests.agent.sources.following import Tail, Writer

_SOAK = os.environ.get("PRODUCER_SOAK") == "1"
#: Number of files, of which one in a hundred is live, and of rotations.
_FILES, _ROTATIONS = (10_000, 1000) if _SOAK else (2_000, 60)


def _stale(monkeypatch: pytest.MonkeyPatch, call: str, times: int) -> None:
    """Make a system call fail several times with ESTALE, as NFS does for a file that its server lost."""
    real, left = getattr(os, call), [times]

    def failing(*arguments: Any, **named: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return real(*arguments, **named)

    monkeypatch.setattr(os, call, failing)


@pytest.mark.parametrize("call", ["fstat", "pread", "open", "scandir"])
@pytest.mark.parametrize("times", [1, 5])
def test_a_stale_handle_loses_nothing_and_brings_nothing_twice(
    tail: Tail, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str, times: int
) -> None:
    """After a stale NFS handle the file is opened again, and read on without loss or repeats."""
    a = Writer(tail.logs / "a.log")
    wanted = a.lines(5)
    found = tail.seen()
    caplog.set_level(logging.WARNING)
    _stale(monkeypatch, call, times)
    for _ in range(8):
        wanted += a.lines(2)
        (tail.logs / "new").mkdir()  # so that the directory is scanned again
        (tail.logs / "new").rmdir()
        found += tail.seen(1)
    a.path.rename(tail.logs / "a.log.1")
    wanted += Writer(a.path, "b").lines(3)
    for _ in range(8):
        found += tail.seen(5)

    assert sorted(found) == sorted(wanted)
    assert [record for record in caplog.records if record.levelno > logging.WARNING] == []


def test_a_file_replaced_on_the_server_behind_a_stale_handle_is_read_from_byte_0(
    tail: Tail, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file replaced on the server behind a stale handle is read from byte 0; unread bytes are reported as lost."""
    a = Writer(tail.logs / "a.log")
    found = tail.seen() if a.lines(5) else []
    a.append(b"unread\n")
    _stale(monkeypatch, "pread", 1)
    tail.look(1)
    a.path.unlink()
    new = Writer(a.path, "new").lines(4)
    for _ in range(4):
        found += tail.seen(700)

    assert found[5:] == new
    assert re.search("7 unread bytes were (deleted|truncated)", caplog.text)


def test_of_thousands_of_files_one_in_a_hundred_lives(tmp_path: Path) -> None:
    """Of many files with few live ones each line arrives once, within the limit of open files; 10,000 in soak."""
    tail = Tail(tmp_path, max_open_files=200)
    paths = [tail.logs / f"app-{number:05}.log" for number in range(_FILES)]
    for path in paths:
        path.write_bytes(b"first of %s\n" % path.name.encode())
    found = len(tail.seen())
    for _ in range(3):
        found += len(tail.seen(10))  # the files settle
    assert found == _FILES
    live, wanted, got = paths[::100], set[bytes](), list[bytes]()
    for turn in range(5):
        for path in live:
            line = b"%d of %s" % (turn, path.name.encode())
            wanted.add(line)
            with path.open("ab") as file:
                file.write(line + b"\n")
        got += tail.seen(0.5)
    for _ in range(40):
        got += tail.seen(0.5)
    opened = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]

    assert sum(each.startswith(str(tail.logs)) for each in opened) <= 200
    assert sorted(got) == sorted(wanted)


@pytest.mark.parametrize("pattern", ["*", "a.log"])
@pytest.mark.parametrize("every", [1, 4])
def test_a_storm_of_renames(tmp_path: Path, pattern: str, every: int) -> None:
    """1,000 renames a minute with eight kept files: each line arrives once."""
    tail = Tail(tmp_path, str(tmp_path / "logs" / pattern))
    a, wanted, found = Writer(tail.logs / "a.log"), list[bytes](), list[bytes]()
    for number in range(_ROTATIONS):
        wanted += a.lines(3)
        if pattern == "a.log" or number % 3 == 0:
            found += tail.seen()  # a file that is only under this name must be scanned
        wanted += a.lines(2) if number % 2 else []
        for kept in range(7, 0, -1):
            if (older := tail.logs / f"a.log.{kept}").exists():
                older.replace(tail.logs / f"a.log.{kept + 1}")
        a.path.rename(tail.logs / "a.log.1")
        a.path.touch()
        tail.clock.advance(0.06)
        if number % every == 0:
            found += tail.seen()
    for _ in range(3):
        found += tail.seen(60)

    assert len(found) == len(set(found))
    assert sorted(found) == sorted(wanted)


def _count_calls(monkeypatch: pytest.MonkeyPatch, then: Callable[[int], None]) -> list[int]:
    """Count opens, reads and polls of files in a list of one number; ``then`` is called with each number."""
    calls = [0]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            calls[0] += 1
            then(calls[0])
            return real(*arguments, **named)

        return call

    for name in ("open", "pread", "fstat", "listdir"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    return calls


def _rotate_all(tail: Tail, count: int, *, deleted: bool) -> None:
    """Rotate all files between two scans, keeping or deleting the old ones."""
    for number in range(count):
        path = tail.logs / f"{number:02d}.log"
        if deleted:
            path.unlink()
        else:
            path.rename(tail.logs / f"{number:02d}.log.1")
        path.write_bytes(b"new %d\n" % number)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("deleted", [False, True])
def test_a_stop_ends_a_scan_of_very_many_rotated_files_at_once_at_any_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, deleted: bool
) -> None:
    """A stop ends a scan of very many rotated files at once, at any place; the next run reads the rest."""
    count, calls_of_a_look, found = 40, 0, [set[bytes](), set[bytes]()]
    for run in range(2):  # the first run counts the calls
        (folder := tmp_path / str(run)).mkdir()
        tail = Tail(folder)
        for number in range(count):
            (tail.logs / f"{number:02d}.log").write_bytes(b"old %d\n" % number)
        found[run].update(tail.seen())
        tail.restart()
        _rotate_all(tail, count, deleted=deleted)

        def stop(calls: int, tail: Tail = tail, at: float = share * calls_of_a_look) -> None:
            if at and calls >= at:
                tail.stop.set()

        with monkeypatch.context() as patched:
            calls = _count_calls(patched, stop)
            tail.follower.look()
        if run:
            assert calls[0] - share * calls_of_a_look < count  # it finishes only the current file
        calls_of_a_look = calls[0]
        found[run].update(tail.lines())
        tail.restart()
        tail.stop, tail.outlet = Stop(tail.clock), tail._outlet()
        found[run].update(tail.seen(10) + tail.seen(10))
        tail.close()
    assert found[0] == found[1] == {b"%b %d" % (age, number) for age in (b"old", b"new") for number in range(count)}


def test_very_many_new_files_are_not_compared_each_with_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Very many new files with similar names are opened a few times each, not compared with each other."""
    tail = Tail(tmp_path)
    Writer(tail.logs / "a.log").lines(3)
    found = tail.seen()
    tail.restart()
    count = 100
    for number in range(count):
        (tail.logs / f"a.log.{number}").write_bytes(b"%05d %b\n" % (number, b"x" * 80))
    with monkeypatch.context() as patched:
        calls = _count_calls(patched, lambda _calls: None)
        tail.look()
    found += tail.lines()
    tail.close()
    assert len(found) == count + 3
    assert calls[0] < 60 * count


def test_files_that_are_gone_are_noted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a start, the notes of many missing files take one sync, not one each."""
    tail = Tail(tmp_path)
    for number in range(50):
        (tail.logs / f"{number:02d}.log").write_bytes(b"%d\n" % number)
    assert len(tail.seen()) == 50
    tail.restart()
    for path in list(tail.logs.iterdir()):
        path.unlink()
    writes: list[int] = []
    write_many = FileNotes.write_many
    monkeypatch.setattr(FileNotes, "write_many", lambda self, rows: writes.append(1) or write_many(self, rows))
    tail.look()
    tail.close()
    assert len(writes) < 10
