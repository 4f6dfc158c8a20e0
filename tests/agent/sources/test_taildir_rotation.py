"""taildir: what becomes of lines when files are rotated, cut, copied, compressed and deleted."""

import gzip
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.agent.sources.taildir import finder, groups

from .following import Tail, Writer


def test_rename_with_a_pattern_of_one_name_loses_nothing(strict: Tail) -> None:
    """What was unread at the rename, late writes to the old file, and the new file: all come, once."""
    a = Writer(strict.logs / "a.log")
    first = a.lines(100)
    assert strict.seen() == first
    unread = a.lines(50)
    a.path.rename(strict.logs / "a.log.1")
    old = Writer(strict.logs / "a.log.1", "late")
    late = old.lines(60)
    new = Writer(strict.logs / "a.log", "new").lines(100)

    assert sorted(strict.seen()) == sorted(unread + late + new)
    later = old.lines(5)
    assert strict.seen(0.5) == later


def test_file_that_is_renamed_while_it_is_empty_has_its_new_name(tmp_path: Path) -> None:
    """Its lines were all written under that: they have it in their header, with the headers of its group."""
    logs = str(tmp_path / "logs")
    groups = {"old": rf"{logs}/a\.log", "new": rf"{logs}/b\.log"}
    tail = Tail(tmp_path, file_groups=groups, headers={"new": {"kind": "new"}}, file_header=True)
    a = tail.logs / "a.log"
    a.touch()
    assert tail.seen() == []
    a.rename(tail.logs / "b.log")
    tail.look(1)
    Writer(tail.logs / "b.log").lines(1)
    tail.look(1)
    (batch,) = tail.batches()
    assert dict(batch.shared) == {"kind": "new", "file": f"{logs}/b.log"}


def test_rename_with_a_pattern_of_all_names_reads_nothing_twice(tail: Tail) -> None:
    """FLUME-3216: a renamed file goes on where it was, also when the pattern has its new name."""
    a = Writer(tail.logs / "a.log")
    first = a.lines(100)
    assert tail.seen() == first
    a.path.rename(tail.logs / "a.log.1")
    new = Writer(tail.logs / "a.log", "new").lines(10)

    assert tail.seen() == new
    assert tail.seen(60) == []


def test_a_rename_while_the_agent_is_down_loses_nothing(strict: Tail) -> None:
    """The old file is found by its inode under a name that no pattern has, and read to its end."""
    a = Writer(strict.logs / "a.log")
    a.lines(10)
    strict.seen()
    strict.restart()
    unread = a.lines(7)
    a.path.rename(strict.logs / "a.log.1")
    new = Writer(strict.logs / "a.log", "new").lines(3)

    assert sorted(strict.seen()) == sorted(unread + new)


def test_copytruncate_to_a_shorter_file_loses_nothing(strict: Tail) -> None:
    """The lines that were unread when the file was copied and cut are read in the copy, which no pattern has."""
    a = Writer(strict.logs / "a.log")
    first = a.lines(100)
    assert strict.seen() == first
    unread = a.lines(50)
    shutil.copyfile(a.path, strict.logs / "a.log.1")
    os.truncate(a.path, 0)
    new = a.lines(20)

    assert sorted(strict.seen()) == sorted(unread + new)
    assert strict.seen(60) == []


def test_copytruncate_to_a_longer_file_loses_nothing(strict: Tail) -> None:
    """A file that grew beyond the old position before anybody looked is seen to be another: its bytes there differ."""
    a = Writer(strict.logs / "a.log")
    a.lines(100)
    strict.seen()
    unread = a.lines(50)
    shutil.copyfile(a.path, strict.logs / "a.log.1")
    os.truncate(a.path, 0)
    new = a.lines(300)

    assert sorted(strict.seen()) == sorted(unread + new)


def test_copytruncate_with_the_same_first_bytes_is_seen(strict: Tail) -> None:
    """The fingerprint of the first bytes says nothing if each file begins alike; the bytes at the position do."""
    banner = b"# a banner that every file has\n" * 50
    a = Writer(strict.logs / "a.log")
    a.append(banner)
    first = a.lines(100)
    assert strict.seen()[50:] == first
    os.truncate(a.path, 0)
    a.append(banner)
    new = a.lines(300)

    assert strict.seen()[50:] == new


@pytest.mark.parametrize("restarted", [False, True])
def test_copytruncate_with_the_same_first_and_last_bytes_is_seen(strict: Tail, restarted: bool) -> None:
    """A file cut and written beyond the old place is read again, though its first and last bytes are the same."""
    banner, end = b"# a banner that every file has\n" * 50, b"# the same end of each hour\n" * 10
    a = Writer(strict.logs / "a.log")
    a.append(banner)
    a.lines(100)
    a.append(end)
    assert len(strict.seen()) == 160
    if restarted:
        strict.restart()
    os.truncate(a.path, 0)
    a.append(banner)
    new = a.lines(100)
    a.append(end)
    more = a.lines(1)

    assert strict.seen()[50:] == [*new, *end.split(b"\n")[:-1], *more]


def test_copytruncate_to_the_same_size_is_seen(strict: Tail) -> None:
    """A file that was cut and has grown to its old size was written since, and is compared."""
    a = Writer(strict.logs / "a.log")
    a.lines(100)
    strict.seen()
    os.truncate(a.path, 0)
    new = a.lines(100)

    assert strict.seen(1) == new


def test_a_copy_that_the_pattern_has_is_not_read_twice(tail: Tail) -> None:
    """copytruncate: the copy appears, grows, and the file is cut; what was read of the file is not read in the copy."""
    a = Writer(tail.logs / "a.log")
    first = a.lines(100)
    assert tail.seen() == first
    unread = a.lines(50)
    content = a.path.read_bytes()
    copy = tail.logs / "a.log.1"
    copy.touch()
    assert tail.seen() == unread
    copy.write_bytes(content[: len(content) // 3])
    assert tail.seen(0.1) == []
    more = a.lines(10)
    with copy.open("ab") as file:
        file.write(a.path.read_bytes()[len(content) // 3 :])
    assert tail.seen(0.1) == more
    last = a.lines(4)
    shutil.copyfile(a.path, copy)
    os.truncate(a.path, 0)
    new = a.lines(5)

    assert sorted(tail.seen(0.1)) == sorted(last + new)
    assert tail.seen(60) == []


def test_a_copy_is_known_again_after_a_restart(tail: Tail) -> None:
    """copytruncate while the agent is down: the copy goes on where the file was, the cut file begins anew."""
    a = Writer(tail.logs / "a.log")
    a.lines(100)
    tail.seen()
    tail.restart()
    unread = a.lines(50)
    shutil.copyfile(a.path, tail.logs / "a.log.1")
    os.truncate(a.path, 0)
    new = a.lines(20)
    assert sorted(tail.seen()) == sorted(unread + new)
    tail.restart()

    assert tail.seen() == []


def test_a_copy_that_is_made_across_a_restart_is_not_read_twice(tail: Tail) -> None:
    """The copy was there when the source was started, and the file was cut after that."""
    a = Writer(tail.logs / "a.log")
    a.lines(100)
    tail.seen()
    tail.restart()
    unread = a.lines(5)
    shutil.copyfile(a.path, tail.logs / "a.log.1")
    assert tail.seen() == unread
    os.truncate(a.path, 0)
    new = a.lines(20)

    assert tail.seen(0.1) + tail.seen(60) == new


def test_a_copy_of_a_file_that_had_just_begun_is_known_after_a_death(tail: Tail) -> None:
    """What tells it apart is noted before its first block is put, also while other notes are not due yet."""
    Writer(tail.logs / "z.log").lines(1)
    tail.seen()
    a = Writer(tail.logs / "a.log")
    a.lines(100)
    tail.seen()
    tail.kill()
    shutil.copyfile(a.path, tail.logs / "a.log.1")
    os.truncate(a.path, 0)
    new = a.lines(20)

    assert tail.seen(0.1) + tail.seen(60) == new


def test_a_plain_copy_of_a_live_file_is_read_as_a_file_of_its_own(tail: Tail) -> None:
    """A file that begins like another, and stays beside it, is one that the pattern names."""
    a = Writer(tail.logs / "a.log")
    first = a.lines(10)
    tail.seen()
    shutil.copyfile(a.path, tail.logs / "a-backup.log")
    assert tail.seen() == []
    tail.look(2)

    assert tail.seen(2) == first


def test_files_that_begin_alike_are_all_read(tail: Tail) -> None:
    """A banner longer than the fingerprint does not make one file the copy of another."""
    banner = b"# a banner that every file has\n" * 100
    written: list[bytes] = []
    for name in ("app.1.log", "app.2.log", "app.log"):
        writer = Writer(tail.logs / name)
        writer.append(banner)
        written += writer.lines(5)
        tail.look()

    assert sorted(line for line in tail.lines() if not line.startswith(b"#")) == sorted(written)


def test_a_compressed_file_beside_is_not_read(tail: Tail, caplog: pytest.LogCaptureFixture) -> None:
    """The .gz of a rotated file holds what was read before: it is told once, and left alone."""
    a = Writer(tail.logs / "a.log")
    tail.seen()
    written = a.lines(10)
    old = a.path.rename(tail.logs / "a.log.1")
    assert tail.seen() == written
    (tail.logs / "a.log.1.gz").write_bytes(gzip.compress(old.read_bytes()))
    old.unlink()

    assert tail.seen() == []
    assert tail.seen(60) == []
    assert [r.message for r in caplog.records if "compressed" in r.message] == [
        f"{tail.logs}/a.log.1.gz: it is compressed and not read, except for unread lines of a file that was followed"
    ]


def test_half_a_last_line_is_held_until_its_end_comes(tail: Tail) -> None:
    """Half a line is no line; the whole one comes once."""
    a = Writer(tail.logs / "a.log")
    a.append(b"one\nhalf")
    assert tail.seen() == [b"one"]
    assert tail.seen(5) == []
    a.append(b" and half\n")

    assert tail.seen() == [b"half and half"]


def test_half_a_last_line_comes_when_its_file_has_rested(tail: Tail) -> None:
    """A last line that nobody ends is not held for ever; what is added later is a line of its own."""
    a = Writer(tail.logs / "a.log")
    a.append(b"one\nhalf")
    tail.seen()
    assert tail.seen(11) == [b"half"]
    a.append(b" more\n")

    assert tail.seen() == [b" more"]


def test_half_a_last_line_comes_soon_when_its_file_was_rotated_away(tail: Tail) -> None:
    """Flume never delivers it."""
    a = Writer(tail.logs / "a.log")
    a.append(b"one\nhalf")
    tail.seen()
    a.path.rename(tail.logs / "a.log.1")
    tail.look()

    assert tail.seen(1.1) == [b"half"]


def test_a_deleted_file_is_read_to_its_end(tail: Tail) -> None:
    """As long as it is open, nothing of a deleted file is lost."""
    a = Writer(tail.logs / "a.log")
    a.lines(3)
    tail.seen()
    unread = a.lines(4)
    a.path.unlink()

    assert tail.seen() == unread
    assert tail.seen(200) == []
    assert not list(tail.logs.iterdir())


def test_bytes_that_were_gone_before_we_looked_are_told(tail: Tail, caplog: pytest.LogCaptureFixture) -> None:
    """A file deleted while the agent is down, with bytes seen and not read, is told with their number."""
    a = Writer(tail.logs / "a.log")
    a.lines(3)
    a.append(b"half a line")
    tail.seen()
    tail.restart()
    a.path.unlink()
    caplog.set_level(logging.ERROR)
    tail.look()

    assert [r.message for r in caplog.records] == [f"{a.path}: 11 unread bytes were deleted"]
    tail.restart()
    tail.look()
    assert len(caplog.records) == 1


def test_half_a_line_that_is_gone_with_its_file_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of more files than may be open one is closed; if it is deleted then nobody can read on."""
    tail = Tail(tmp_path, max_open_files=1)
    first, second = (Writer(tail.logs / name) for name in ("a.log", "b.log"))
    first.lines(1)
    first.append(b"half")
    tail.seen()
    second.lines(1)
    tail.seen(1)
    first.path.unlink()
    for _ in range(30):
        tail.seen(1)
    assert f"{first.path}: 4 unread bytes were deleted" in caplog.text


def test_bytes_that_were_cut_off_unread_are_told(tail: Tail, caplog: pytest.LogCaptureFixture) -> None:
    """A file that was cut, with bytes that were seen and not read and of which there is no copy, is told."""
    a = Writer(tail.logs / "a.log")
    a.lines(3)
    a.append(b"half a line")
    tail.seen()
    caplog.set_level(logging.ERROR)
    os.truncate(a.path, 0)
    tail.look()

    assert [r.message for r in caplog.records] == [f"{a.path}: 11 unread bytes were truncated, and no copy has them"]


def test_a_reused_inode_is_noticed(tail: Tail) -> None:
    """A new file with the inode of a deleted one begins at its first byte."""
    a = Writer(tail.logs / "a.log")
    a.lines(10)
    tail.seen()
    tail.restart()
    # What a file system does with the number of a deleted file, done by hand: another name, and other bytes under it.
    os.truncate(a.path, 0)
    b = Writer(a.path.rename(tail.logs / "b.log"))
    new = b.lines(20)

    assert tail.seen() == new


def test_permission_lost_and_given_back(
    tail: Tail, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that may not be read is told once, counted while it is so, tried again, and read when it may."""
    a = Writer(tail.logs / "a.log")
    written = a.lines(3)
    forbidden = True
    real = os.open

    def guarded(path: object, *arguments: object, **named: object) -> int:
        if forbidden and path == str(a.path):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", guarded)
    for _ in range(5):
        assert tail.seen(1) == []
    assert tail.counters.get("UnreadableCount") == 1
    forbidden = False

    assert tail.seen(1) == written
    assert tail.counters.get("UnreadableCount") == 0
    assert [(r.levelno, r.message) for r in caplog.records if r.levelno in (logging.INFO, logging.WARNING)] == [
        (logging.WARNING, f"{a.path}: cannot be read: Permission denied; retrying"),
        (logging.INFO, f"{a.path} can be read again"),
    ]


@pytest.mark.parametrize("days", [-30, 30])
def test_a_wall_clock_that_is_set_back_or_forward_loses_nothing(tail: Tail, days: int) -> None:
    """While a file is followed, over a rotation, and over a restart; also of files that were gone for a moment."""
    a = Writer(tail.logs / "a.log")
    wanted = a.lines(3)
    found = tail.seen()
    tail.clock.set_wall(tail.clock.time() + days * 86400)
    wanted += a.lines(3)
    found += tail.seen(1)
    a.path.rename(tail.logs / "a.log.1")
    b = Writer(tail.logs / "a.log", "b")
    wanted += b.lines(3)
    tail.restart()
    found += tail.seen(1) + tail.seen(700)  # when it looks for what may be forgotten
    wanted += b.lines(3)
    found += tail.seen(1)
    tail.restart()
    found += tail.seen(1)
    assert sorted(found) == sorted(wanted)


def test_many_new_files_do_not_put_off_the_next_look_into_the_directory(
    tail: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long their beginning took: what is rotated meanwhile may be deleted soon."""
    opened = finder.open_quickly

    def slowly(path: str) -> int:
        tail.clock.advance(2.0)
        return opened(path)

    monkeypatch.setattr(finder, "open_quickly", slowly)
    first = [line for name in "abc" for line in Writer(tail.logs / f"{name}.log").lines(1)]
    assert sorted(tail.seen()) == first
    assert tail.seen() == []
    late = Writer(tail.logs / "d.log").lines(1)
    assert tail.seen(0.1) == late


def test_a_directory_that_is_slow_to_read_is_read_every_five_seconds(
    tail: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not a fiftieth of the time, which would be minutes."""
    scans = groups.Directories.scans

    def slowly(self: groups.Directories, now: float) -> Iterator[groups.Scan]:
        tail.clock.advance(4.0)
        return scans(self, now)

    monkeypatch.setattr(groups.Directories, "scans", slowly)
    assert tail.seen() == []
    late = Writer(tail.logs / "a.log").lines(1)
    assert tail.seen(4.9) == []
    assert tail.seen(0.2) == late
