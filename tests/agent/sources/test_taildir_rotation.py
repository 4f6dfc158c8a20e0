"""taildir: lines of files that are rotated, truncated, copied, compressed and deleted."""

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
    """With a pattern of one name, unread lines, late writes to the renamed file, and the new file arrive once."""
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


def test_a_file_that_was_renamed_while_empty_has_its_new_name_and_group_in_its_events_headers(tmp_path: Path) -> None:
    """A file that was renamed while empty has its new name and group in its events' headers."""
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
    """FLUME-3216: a renamed file continues at its position, even if the pattern matches the new name."""
    a = Writer(tail.logs / "a.log")
    first = a.lines(100)
    assert tail.seen() == first
    a.path.rename(tail.logs / "a.log.1")
    new = Writer(tail.logs / "a.log", "new").lines(10)

    assert tail.seen() == new
    assert tail.seen(60) == []


def test_a_rename_while_the_agent_is_down_loses_nothing(strict: Tail) -> None:
    """A file renamed while the agent is down is found by its inode, even outside the pattern, and read to its end."""
    a = Writer(strict.logs / "a.log")
    a.lines(10)
    strict.seen()
    strict.restart()
    unread = a.lines(7)
    a.path.rename(strict.logs / "a.log.1")
    new = Writer(strict.logs / "a.log", "new").lines(3)

    assert sorted(strict.seen()) == sorted(unread + new)


def test_copytruncate_to_a_shorter_file_loses_nothing(strict: Tail) -> None:
    """After copytruncate unread lines are read from the copy, which the pattern does not match."""
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
    """A truncated file that grew beyond the old position is recognized by its bytes there."""
    a = Writer(strict.logs / "a.log")
    a.lines(100)
    strict.seen()
    unread = a.lines(50)
    shutil.copyfile(a.path, strict.logs / "a.log.1")
    os.truncate(a.path, 0)
    new = a.lines(300)

    assert sorted(strict.seen()) == sorted(unread + new)


def test_copytruncate_with_the_same_first_bytes_is_seen(strict: Tail) -> None:
    """A truncated file with the same first bytes is recognized by the bytes at the position."""
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
    """A truncated file with the same first and last bytes is recognized by marks in between, and read again."""
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
    """A truncated file that has grown to its old size is recognized."""
    a = Writer(strict.logs / "a.log")
    a.lines(100)
    strict.seen()
    os.truncate(a.path, 0)
    new = a.lines(100)

    assert strict.seen(1) == new


def test_a_copy_that_the_pattern_has_is_not_read_twice(tail: Tail) -> None:
    """A growing copy that matches the pattern is not read, except for lines that were unread at the truncation."""
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
    """After copytruncate while the agent is down, the copy continues the file, and the file begins at byte 0."""
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
    """A copy made before a start and truncated after it is not read twice."""
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
    """A file's note is written before its first block is put, so its copy is recognized after a crash."""
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
    """A copy that stays beside its unchanged original is read as a file of its own."""
    a = Writer(tail.logs / "a.log")
    first = a.lines(10)
    tail.seen()
    shutil.copyfile(a.path, tail.logs / "a-backup.log")
    assert tail.seen() == []
    tail.look(2)

    assert tail.seen(2) == first


def test_files_that_begin_with_the_same_banner_longer_than_the_compared_bytes_are_all_read(tail: Tail) -> None:
    """Files that begin with the same banner, longer than the compared bytes, are all read."""
    banner = b"# a banner that every file has\n" * 100
    written: list[bytes] = []
    for name in ("app.1.log", "app.2.log", "app.log"):
        writer = Writer(tail.logs / name)
        writer.append(banner)
        written += writer.lines(5)
        tail.look()

    assert sorted(line for line in tail.lines() if not line.startswith(b"#")) == sorted(written)


def test_a_compressed_file_beside_is_not_read(tail: Tail, caplog: pytest.LogCaptureFixture) -> None:
    """A compressed file that was read before its compression is logged once, and not read."""
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
    """An unfinished last line waits for its end, and arrives once."""
    a = Writer(tail.logs / "a.log")
    a.append(b"one\nhalf")
    assert tail.seen() == [b"one"]
    assert tail.seen(5) == []
    a.append(b" and half\n")

    assert tail.seen() == [b"half and half"]


def test_half_a_last_line_comes_when_its_file_has_rested(tail: Tail) -> None:
    """An unfinished last line is taken after settle; bytes added later are another line."""
    a = Writer(tail.logs / "a.log")
    a.append(b"one\nhalf")
    tail.seen()
    assert tail.seen(11) == [b"half"]
    a.append(b" more\n")

    assert tail.seen() == [b" more"]


def test_half_a_last_line_comes_soon_when_its_file_was_rotated_away(tail: Tail) -> None:
    """An unfinished last line of a rotated file is taken after one second; Flume never delivers it."""
    a = Writer(tail.logs / "a.log")
    a.append(b"one\nhalf")
    tail.seen()
    a.path.rename(tail.logs / "a.log.1")
    tail.look()

    assert tail.seen(1.1) == [b"half"]


def test_a_deleted_file_is_read_to_its_end(tail: Tail) -> None:
    """A deleted file that is open is read to its end."""
    a = Writer(tail.logs / "a.log")
    a.lines(3)
    tail.seen()
    unread = a.lines(4)
    a.path.unlink()

    assert tail.seen() == unread
    assert tail.seen(200) == []
    assert not list(tail.logs.iterdir())


def test_known_bytes_of_a_file_deleted_while_the_agent_is_down_are_reported_as_lost_with_their_number(
    tail: Tail, caplog: pytest.LogCaptureFixture
) -> None:
    """Known bytes of a file deleted while the agent is down are reported as lost, with their number."""
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


def test_unread_bytes_of_a_file_that_was_closed_for_the_limit_and_then_deleted_are_reported_as_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Unread bytes of a file that was closed for the limit and then deleted are reported as lost."""
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


def test_known_bytes_that_were_truncated_unread_without_a_copy_are_reported_as_lost(
    tail: Tail, caplog: pytest.LogCaptureFixture
) -> None:
    """Known bytes that were truncated unread, without a copy, are reported as lost."""
    a = Writer(tail.logs / "a.log")
    a.lines(3)
    a.append(b"half a line")
    tail.seen()
    caplog.set_level(logging.ERROR)
    os.truncate(a.path, 0)
    tail.look()

    assert [r.message for r in caplog.records] == [f"{a.path}: 11 unread bytes were truncated, and no copy has them"]


def test_a_reused_inode_is_noticed(tail: Tail) -> None:
    """A new file with a reused inode is read from byte 0."""
    a = Writer(tail.logs / "a.log")
    a.lines(10)
    tail.seen()
    tail.restart()
    # Simulate a reused inode: another name, and other bytes in the same file.
    os.truncate(a.path, 0)
    b = Writer(a.path.rename(tail.logs / "b.log"))
    new = b.lines(20)

    assert tail.seen() == new


def test_permission_lost_and_given_back(
    tail: Tail, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file without permission is logged once, counted, retried, and read when permission is back."""
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
    """A clock that jumps loses and repeats no line, across rotations, restarts and briefly missing files."""
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
    found += tail.seen(1) + tail.seen(700)  # the time when old positions are forgotten
    wanted += b.lines(3)
    found += tail.seen(1)
    tail.restart()
    found += tail.seen(1)
    assert sorted(found) == sorted(wanted)


def test_opening_many_new_files_does_not_delay_the_next_scan_since_rotated_files_may_be_deleted_soon(
    tail: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening many new files does not delay the next scan, since rotated files may be deleted soon."""
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


def test_a_directory_that_is_slow_to_scan_is_scanned_every_five_seconds(
    tail: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that is slow to scan is scanned every five seconds, not after fifty times its duration."""
    scans = groups.Directories.scans

    def slowly(self: groups.Directories, now: float) -> Iterator[groups.Scan]:
        tail.clock.advance(4.0)
        return scans(self, now)

    monkeypatch.setattr(groups.Directories, "scans", slowly)
    assert tail.seen() == []
    late = Writer(tail.logs / "a.log").lines(1)
    assert tail.seen(4.9) == []
    assert tail.seen(0.2) == late
