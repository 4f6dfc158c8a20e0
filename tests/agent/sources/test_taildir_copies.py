"""taildir: copytruncate step by step with crashes in between: each line arrives once."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from producer.agent.sources.reading import reader
from producer.agent.sources.reading.cutting import Rules
from producer.agent.sources.reading.reader import FileReader
from producer.agent.sources.taildir.copies import Copies
from producer.agent.sources.taildir.readers import Readers
from producer.channels.file.store.notes import FileNotes

from ..doubles import die
from .following import Tail, Writer


def _copy(a: Writer, name: str = "a.log.1") -> Path:
    return Path(shutil.copyfile(a.path, a.path.with_name(name)))


def _copy_and_cut(a: Writer) -> None:
    _copy(a)
    os.truncate(a.path, 0)


def _once(
    monkeypatch: pytest.MonkeyPatch, kind: object, method: str, act: Callable[[], object], *, before: bool
) -> None:
    """Run an action before or after the next call of a method."""
    real, acts = getattr(kind, method), [act]

    def hooked(*arguments: object) -> object:
        if before and acts:
            acts.pop()()
        result = real(*arguments)
        if acts:
            acts.pop()()
        return result

    monkeypatch.setattr(kind, method, hooked)


@pytest.mark.parametrize("before", [True, False])
def test_a_file_that_is_cut_while_its_name_is_noted(tail: Tail, monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
    """If a file is truncated while it is named, no other bytes are put under the name, even after a crash."""
    a = Writer(tail.logs / "a.log")
    tail.look()
    first, new = a.lines(50), []

    def rotate() -> None:
        _copy_and_cut(a)
        new.extend(a.lines(20))

    _once(monkeypatch, FileNotes, "write_many", rotate, before=before)
    found = tail.seen() + tail.seen(0.1)
    tail.kill()
    found += tail.seen() + tail.seen(60)

    assert sorted(found) == sorted(first + new)


def test_a_file_that_is_cut_while_its_first_bytes_are_read(tail: Tail, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is made of the bytes that were read, even if the file is truncated during the read."""
    a = Writer(tail.logs / "a.log")
    tail.look()
    first, new = a.lines(50), []

    def rotate() -> None:
        _copy_and_cut(a)
        new.extend(a.lines(3))

    _once(monkeypatch, FileReader, "name_by", rotate, before=True)
    found = tail.seen() + tail.seen(0.1)
    later = a.lines(50)
    found += tail.seen(0.1)
    tail.kill()
    found += tail.seen() + tail.seen(60)

    assert sorted(found) == sorted(first + new + later)


@pytest.mark.parametrize("copy", ["a.log.1", "a-1.log"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_a_file_and_its_copy_that_are_found_at_once(tail: Tail, copy: str, known: bool, whole: bool) -> None:
    """If the source starts between the copy and the truncation, one of the files waits, and lines arrive once."""
    if known:
        other = Writer(tail.logs / "b.log")
        other.lines(3)
        tail.seen()
        tail.restart()
    a = Writer(tail.logs / "a.log")
    first = a.lines(50)
    made = _copy(a, copy)
    if not whole:
        os.truncate(made, 500)
    assert tail.seen() == first
    made.write_bytes(a.path.read_bytes())
    assert tail.seen(0.1) == []
    os.truncate(a.path, 0)
    new = a.lines(5)

    assert tail.seen(0.1) + tail.seen(60) == new


@pytest.mark.parametrize("when", ["the copy", "the cut"])
def test_a_death_between_a_copy_and_its_cut(tail: Tail, when: str) -> None:
    """After a crash between copy and truncation, lines that were put are not repeated from the copy."""
    a = Writer(tail.logs / "a.log")
    first = a.lines(50)
    assert tail.seen() == first
    unread = a.lines(5)
    _copy(a)
    if when == "the cut":
        assert tail.seen() == unread
        os.truncate(a.path, 0)
        unread = []
    tail.kill()
    found = tail.seen()
    if when == "the copy":
        os.truncate(a.path, 0)
    new = a.lines(7)
    found += tail.seen(0.1)
    tail.kill()
    found += tail.seen() + tail.seen(60)

    assert sorted(found) == sorted(unread + new)


def test_after_a_crash_before_the_copys_inode_was_noted_the_next_start_recognizes_the_copy(tail: Tail) -> None:
    """After a crash before the copy's inode was noted, the next start recognizes the copy by its bytes."""
    a = Writer(tail.logs / "a.log")
    a.lines(50)
    tail.look()
    unread = a.lines(5)
    _copy_and_cut(a)
    new = a.lines(7)
    tail.look()
    tail.kill()
    tail.look(60)

    assert sorted(tail.lines()[50:]) == sorted(unread + new)


@pytest.mark.parametrize("before", [True, False])
def test_a_file_that_is_cut_while_it_is_recognized(tail: Tail, monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
    """A file that is truncated while it is recognized at a start is not taken for the old one."""
    a = Writer(tail.logs / "a.log")
    a.lines(50)
    tail.seen()
    tail.kill()
    unread, new = a.lines(5), []

    def rotate() -> None:
        _copy_and_cut(a)
        new.extend(a.lines(200))

    _once(monkeypatch, reader, "holds", rotate, before=before)

    assert sorted(tail.seen() + tail.seen(60)) == sorted(unread + new)


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_lines_written_between_a_copy_and_the_truncation_are_neither_lost_nor_repeated(
    tail: Tail, down: bool, waits: bool
) -> None:
    """Lines written after the copy was made and put before the truncation are neither lost nor repeated."""
    a = Writer(tail.logs / "a.log")
    first = a.lines(5000)
    assert tail.seen() == first
    copy = _copy(a)
    if waits:
        assert tail.seen() == []
    elif not down:
        copy = copy.rename(tail.logs.parent / "a.log.1")
    late = a.lines(300)
    assert tail.seen() == late
    if down:
        tail.kill()
    if not waits and not down:
        copy.rename(tail.logs / "a.log.1")
    os.truncate(a.path, 0)
    new = a.lines(4)
    found = tail.seen() + tail.seen(60)
    tail.kill()
    found += tail.seen() + tail.seen(60)

    assert found == new


def test_lines_that_a_memory_channel_lost_in_a_crash_are_read_again_from_a_copy(tmp_path: Path) -> None:
    """Lines that a memory channel lost in a crash are read again from a copy, as far as the copy has them."""
    tail = Tail(tmp_path)
    a = Writer(tail.logs / "a.log")
    first = a.lines(5000)
    assert tail.seen() == first
    undelivered = a.lines(40)
    _copy(a)
    a.lines(10)
    tail.look()
    os.truncate(a.path, 0)
    tail.look(2)
    tail.kill()
    for channel in tail.channels.values():
        channel.flush()
    die(*tail.channels.values())
    again = Tail(tmp_path)

    assert again.seen() == undelivered


def test_a_cut_that_is_seen_late(tail: Tail) -> None:
    """A copy is recognized even if the source sees the truncation late, after the copy has settled."""
    a = Writer(tail.logs / "a.log")
    first = a.lines(50)
    _copy(a)
    assert tail.seen() == first
    tail.look(0.1)
    os.truncate(a.path, 0)
    new = a.lines(5)

    assert tail.seen(60) == new


def test_a_file_that_is_copied_and_deleted_instead_of_truncated_continues_in_its_copy(tail: Tail) -> None:
    """A file that is copied and deleted, instead of truncated, continues in its copy."""
    a = Writer(tail.logs / "a.log")
    first = a.lines(50)
    assert tail.seen() == first
    _copy(a)
    assert tail.seen(0.1) == []
    a.path.unlink()
    new = a.lines(5)

    assert tail.seen(0.1) + tail.seen(60) + tail.seen(200) + tail.seen(60) == new


def test_a_copy_with_the_inode_of_a_deleted_file(tail: Tail) -> None:
    """A copy that gets the inode of a deleted file is recognized by its bytes, not by the inode."""
    old = Writer(tail.logs / "a.log.9", "old")
    old.lines(20)
    a = Writer(tail.logs / "a.log")
    a.lines(50)
    tail.look()
    elsewhere = old.path.rename(tail.logs.parent / "deleted")
    tail.look(1)
    assert len(tail.lines()) == 70
    assert tail.seen(200) == []
    elsewhere.write_bytes(a.path.read_bytes())
    elsewhere.rename(tail.logs / "a.log.1")
    assert tail.seen() == []
    os.truncate(a.path, 0)
    new = a.lines(5)

    assert tail.seen(0.1) + tail.seen(60) == new


def test_looking_for_copies_keeps_few_files_open(tmp_path: Path) -> None:
    """Comparing a new file with possible originals keeps to the limit of open files."""
    tail = Tail(tmp_path, max_open_files=4)
    for number in range(30):
        (tail.logs / f"a.{number}.log").write_bytes(b"the same banner in each of them\n" * 50 + b"%d\n" % number)
    tail.look()
    tail.kill()
    for number in range(30, 40):
        (tail.logs / f"a.{number}.log").write_bytes(b"the same banner in each of them\n" * 50 + b"%d\n" % number)
    tail.look()

    opened = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
    assert sum(each.startswith(str(tail.logs)) for each in opened) <= 4
    assert len(tail.lines()) == 40 * 51


@pytest.mark.parametrize("every", [1, 3])
def test_a_storm_of_copies_and_cuts(tail: Tail, every: int) -> None:
    """300 copytruncate rotations a minute: each line that was on the disk at a scan arrives once."""
    a, written, found = Writer(tail.logs / "a.log"), list[bytes](), list[bytes]()
    for number in range(60):
        written += a.lines(3)
        if number % 2:
            found += tail.seen()
            written += a.lines(2)
        _shift(a, 5)
        written += a.lines(1) if number % 3 else []
        tail.clock.advance(0.2)
        if number % every == 0:
            found += tail.seen()
    for _ in range(3):
        found += tail.seen(60)

    assert len(found) == len(set(found))
    assert sorted(found) == sorted(written)


def _shift(a: Writer, most: int) -> None:
    """Rotate like logrotate with copytruncate: shift older copies, and delete the oldest."""
    for number in range(most - 1, 0, -1):
        older = a.path.with_name(f"a.log.{number}")
        if older.exists():
            older.replace(a.path.with_name(f"a.log.{number + 1}"))
    _copy_and_cut(a)


def test_a_new_file_is_compared_with_few(tmp_path: Path) -> None:
    """A new file is compared only with files of its directory and a similar name, not with thousands."""
    readers = Readers(10)
    for number in range(3000):
        reader = FileReader(
            f"/logs/{number % 2}/app-{number}.log", "", (1, number), Rules(None, 1 << 20, 1.0, 1.0), 0.0
        )
        readers.add(reader)
    new = tmp_path / "app-77.log.1"
    new.touch()
    compared: list[FileReader] = []
    copies = Copies(readers)
    copies.is_like = lambda reader, _: bool(compared.append(reader))  # type: ignore[method-assign]
    with new.open("rb") as file:
        assert copies.original_of("/logs/1/app-77.log.1", file.fileno(), fresh=False) is None
    assert [reader.path for reader in compared] == ["/logs/1/app-7.log", "/logs/1/app-77.log"]
    readers.moved(compared[0], "/logs/0/app-7.log")
    readers.drop(compared[1])
    compared.clear()
    with new.open("rb") as file:
        assert copies.original_of("/logs/1/app-77.log.1", file.fileno(), fresh=False) is None
    assert compared == []
