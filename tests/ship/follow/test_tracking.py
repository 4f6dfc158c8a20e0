"""Tracking: each byte of followed files is shipped exactly once, whatever happens to the files."""

import bz2
import errno
import gzip
import json
import lzma
import os
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import lz4.frame
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from producer.ship.errors import InputError
from producer.ship.files.find import Found, Search
from producer.ship.files.log_file import LogFile
from producer.ship.files.plan import cut
from producer.ship.follow import tracking
from producer.ship.follow.tracking import Offset, Range, advance, ranges
from producer.ship.lines.split_lines import read_split
from producer.wire.log_start import Logs, StartPattern
from producer.wire.zstd import zstd
from tests.ship.lines.test_line import single_lines

_ALL = 1 << 40
_NEVER_SETTLED = 1e12


def scan(
    paths: list[str], exclude: list[str], known: Offset, *, settle: float, now: float, logs: Logs | None = None
) -> Offset:
    """Return the offset after all lines that are complete in the paths, which need not exist."""
    found = Search(paths, exclude=exclude, lenient=True).all()
    return tracking.scan(found, exclude, known, settle=settle, now=now, logs=logs)


class Follower:
    """Ships new ranges as micro-batches do; offsets pass through JSON, as in a checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.offset: Offset = {}

    def take(self, *, settle: float = _NEVER_SETTLED, max_bytes: int = _ALL) -> list[Range]:
        target = scan([str(self.folder)], [], self.offset, settle=settle, now=_now())
        return self.move_to(advance(self.offset, target, max_bytes))

    def move_to(self, offset: Offset) -> list[Range]:
        reached = json.loads(json.dumps(offset))
        found = ranges(self.offset, reached)
        self.offset = reached
        return found

    def texts(self, *, settle: float = _NEVER_SETTLED, max_bytes: int = _ALL) -> list[str]:
        return [text_of(each) for each in self.take(settle=settle, max_bytes=max_bytes)]


def _now() -> float:
    # Files of this test were written "now", so only `settle` decides if they are complete.
    return 2e9


def text_of(found: Range) -> str:
    assert not found.lost
    return Path(found.file.path).read_bytes()[found.start : found.file.size].decode()


def records_of(found: Range, *, partition_bytes: int) -> list[tuple[int, str]]:
    """Return the (offset, line) pairs that the tasks of a micro-batch read."""
    splits = cut(found.file, found.start, found.file.size, partition_bytes=partition_bytes)
    lines = (line for split in splits for line in single_lines(read_split(split, 1000)))
    return [(line.offset, line.data.decode()) for line in lines]


def write(path: Path, text: str) -> None:
    with path.open("a", newline="") as file:
        file.write(text)
    os.utime(path, (_now(), _now()))


def test_appended_lines_are_taken_from_where_the_last_batch_ended(tmp_path: Path) -> None:
    """A growing file yields its new lines once."""
    follower = Follower(tmp_path)
    write(tmp_path / "a.log", "one\ntwo\n")
    assert follower.texts() == ["one\ntwo\n"]
    assert follower.texts() == []
    write(tmp_path / "a.log", "three\n")
    assert follower.texts() == ["three\n"]


def test_unfinished_line_waits_for_its_end(tmp_path: Path) -> None:
    """An unfinished line is shipped when it is complete."""
    follower = Follower(tmp_path)
    write(tmp_path / "a.log", "one\ntw")
    assert follower.texts() == ["one\n"]
    write(tmp_path / "a.log", "o\n")
    assert follower.texts() == ["two\n"]


def test_line_end_on_the_border_of_two_blocks_is_found(tmp_path: Path) -> None:
    """A line end that is the first byte of a block is found by the backwards search."""
    follower = Follower(tmp_path)
    write(tmp_path / "a.log", "one\n" + "t" * (tracking._BLOCK_BYTES - 1))
    assert follower.texts() == ["one\n"]


def test_unfinished_line_of_a_file_that_rests_is_taken(tmp_path: Path) -> None:
    """The unfinished last line of a settled file is shipped."""
    follower = Follower(tmp_path)
    write(tmp_path / "a.log", "one\ntw")
    assert follower.texts(settle=0) == ["one\ntw"]


def test_a_preallocated_file_with_nuls_at_its_end_is_read_up_to_its_last_line(tmp_path: Path) -> None:
    """A preallocated file with NULs at its end is read up to its last line, and later lines are not lost."""
    follower = Follower(tmp_path)
    write(tmp_path / "a.log", "a\nb\n" + "\0" * 100)
    (first,) = follower.take(settle=0)
    assert records_of(first, partition_bytes=1000) == [(0, "a"), (2, "b")]
    with (tmp_path / "a.log").open("r+b") as file:
        file.seek(4)
        file.write(b"c\n")
    (second,) = follower.take(settle=0)
    assert records_of(second, partition_bytes=1000) == [(4, "c")]


def test_bytes_added_to_a_line_that_had_settled_are_a_line_of_their_own(tmp_path: Path) -> None:
    """Bytes added to a line that was already shipped are a line of their own, with their own offset."""
    follower = Follower(tmp_path)
    write(tmp_path / "a.log", "a\nb\nunfinished")
    (first,) = follower.take(settle=0)
    assert records_of(first, partition_bytes=1000) == [(0, "a"), (2, "b"), (4, "unfinished")]
    write(tmp_path / "a.log", " more\nc\n")
    (second,) = follower.take()
    for size in (1, 3, 1000):
        assert records_of(second, partition_bytes=size) == [(14, " more"), (20, "c")]


def test_rotation_by_renaming_loses_no_line_and_ships_none_twice(tmp_path: Path) -> None:
    """Rotation by renaming loses no line, and ships none twice."""
    follower = Follower(tmp_path)
    log = tmp_path / "a.log"
    write(log, "one\n")
    assert follower.texts() == ["one\n"]
    write(log, "two\n")
    log.rename(tmp_path / "a.log.1")
    write(log, "three\n")
    assert follower.texts() == ["three\n", "two\n"]


@pytest.mark.parametrize("followed", ["a.log", "*.log", "link.log"])
def test_a_named_file_is_continued_after_its_renaming_unless_its_new_name_is_excluded(
    tmp_path: Path, followed: str
) -> None:
    """A named file is continued after its renaming, unless its new name is excluded."""
    (folder := tmp_path / "real").mkdir()
    log, old = folder / "a.log", folder / "a.log.1"
    (tmp_path / "link.log").symlink_to(log)
    follower = Follower((tmp_path if followed == "link.log" else folder) / followed)
    write(log, "one\n")
    assert follower.texts() == ["one\n"]
    write(log, "two\nthr")
    log.rename(old)
    write(log, "successor\n")
    (folder / "other").write_text("one\nnever followed\n")
    assert sorted(follower.texts()) == ["successor\n", "two\n"]
    write(old, "ee\n")
    assert follower.texts() == ["three\n"]
    write(old, "four\n")
    reached = scan([str(follower.folder)], ["*.1"], follower.offset, settle=_NEVER_SETTLED, now=_now())
    assert ranges(follower.offset, reached) == []
    old.unlink()
    write(log, "successor 2\n")
    assert follower.texts() == ["successor 2\n"]
    assert len(follower.offset) == 1


def test_second_name_of_a_file_that_is_removed_does_not_bring_its_lines_twice(tmp_path: Path) -> None:
    """A deleted hard link is not mistaken for a renamed file."""
    follower = Follower(tmp_path)
    write(tmp_path / "a.log", "one\n")
    os.link(tmp_path / "a.log", tmp_path / "b.log")
    assert follower.texts() == ["one\n"]
    (tmp_path / "b.log").unlink()
    write(tmp_path / "a.log", "two\n")
    assert follower.texts() == ["two\n"]


def test_other_file_with_the_inode_of_an_empty_one_is_not_taken(tmp_path: Path) -> None:
    """Another file with the inode of an empty one is only accepted under a name that begins with the old one."""
    follower = Follower(tmp_path / "a.log")
    write(tmp_path / "a.log", "unfinished")
    assert follower.texts() == []
    (tmp_path / "a.log").rename(tmp_path / "private")
    assert follower.texts(settle=0) == []
    follower.offset = {}
    (tmp_path / "private").rename(tmp_path / "a.log")
    assert follower.texts() == []
    (tmp_path / "a.log").rename(tmp_path / "a.log.1")
    assert follower.texts(settle=0) == ["unfinished"]


def test_after_copytruncate_the_new_lines_are_shipped_from_the_start_of_the_file(tmp_path: Path) -> None:
    """After copytruncate, the new lines are shipped from the start of the file."""
    follower = Follower(tmp_path)
    log = tmp_path / "a.log"
    write(log, "one\ntwo\n")
    follower.take()
    os.truncate(log, 0)
    write(log, "three\n")
    assert follower.texts() == ["three\n"]


def test_a_longer_file_with_the_inode_of_a_deleted_one_starts_at_byte_0_as_its_first_bytes_differ(
    tmp_path: Path,
) -> None:
    """A longer file with the inode of a deleted one starts at byte 0, as its first bytes differ."""
    follower = Follower(tmp_path)
    log = tmp_path / "a.log"
    write(log, "one\n")
    follower.take()
    os.truncate(log, 0)
    write(log, "another and longer\n")
    assert follower.texts() == ["another and longer\n"]


def test_compressed_file_is_taken_whole_once_it_rests(tmp_path: Path) -> None:
    """A gzip file that is still being written is not read."""
    follower = Follower(tmp_path)
    # Stored, not deflated, so that its bytes contain a line end.
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\n", compresslevel=0))
    os.utime(tmp_path / "a.gz", (_now(), _now()))
    assert follower.take() == []
    (found,) = follower.take(settle=0)
    assert (found.start, found.file.size) == (0, (tmp_path / "a.gz").stat().st_size)
    assert found.file.compression == "gzip"


_PACKED = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd.compress,
    "lz4": lz4.frame.compress,
}


@pytest.mark.parametrize("compression", _PACKED)
def test_members_added_to_a_compressed_file_are_taken_alone(tmp_path: Path, compression: str) -> None:
    """Members added to a compressed file are shipped alone, with their offsets in the decompressed file."""
    follower, pack = Follower(tmp_path), _PACKED[compression]

    def add(data: bytes) -> list[tuple[int, str]]:
        with (tmp_path / "a.log.x").open("ab") as file:
            file.write(data)
        return [record for found in follower.take(settle=0) for record in records_of(found, partition_bytes=1000)]

    assert add(pack(b"one\ntwo\n")) == [(0, "one"), (4, "two")]
    assert add(pack(b"three\n")) == [(8, "three")]
    assert add(pack(b"four\n") + pack(b"five\n")) == [(14, "four"), (19, "five")]


def test_a_member_added_between_plan_and_read_is_shipped_once_in_the_next_batch(tmp_path: Path) -> None:
    """A member added between plan and read is shipped once, in the next batch."""
    follower = Follower(tmp_path)
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\n"))
    (first,) = follower.take(settle=0)
    with (tmp_path / "a.gz").open("ab") as file:
        file.write(gzip.compress(b"two\n"))
    assert records_of(first, partition_bytes=1000) == [(0, "one")]
    (second,) = follower.take(settle=0)
    assert records_of(second, partition_bytes=1000) == [(4, "two")]


def test_compressed_file_that_was_taken_within_a_member_is_taken_again(tmp_path: Path) -> None:
    """A compressed file whose offset is within a member is read again as a whole."""
    follower, data = Follower(tmp_path), gzip.compress(b"one\n")
    (tmp_path / "a.gz").write_bytes(data[:-4])
    follower.take(settle=0)
    (tmp_path / "a.gz").write_bytes(data)
    (found,) = follower.take(settle=0)
    assert records_of(found, partition_bytes=1000) == [(0, "one")]


def test_a_truncated_file_with_the_same_header_and_more_bytes_starts_at_byte_0(tmp_path: Path) -> None:
    """A truncated file with the same header and more bytes starts at byte 0, as the bytes before the offset differ."""
    follower, log, header = Follower(tmp_path), tmp_path / "a.log", "# " + "h" * 300 + "\n"
    write(log, header + "one\n" * 100)
    follower.take()
    os.truncate(log, 0)
    write(log, header + "two\n" * 200)
    assert follower.texts() == [header + "two\n" * 200]


def _on(number: int, path: Path, seen: LogFile) -> LogFile:
    """Return a file as found on a volume where each file has the same inode."""
    return replace(seen, path=str(path), device=number, inode=7)


def test_files_of_two_volumes_that_have_one_inode_are_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of two volumes with one inode are tracked separately, even if one is deleted or devices change."""
    follower, devices = Follower(tmp_path), {"a": 1, "b": 2}
    search = Search.all
    monkeypatch.setattr(Search, "all", lambda _: Found(tuple(volumes()), ()))
    monkeypatch.setattr(tracking, "open_file", lambda file: open(file.path, "rb"))  # noqa: PTH123, SIM115

    def volumes() -> list[LogFile]:
        files = {file.path.rpartition("/")[2]: file for file in search(Search([str(tmp_path)])).files}
        return [_on(devices[name], tmp_path / name, file) for name, file in sorted(files.items())]

    header = "# " + "h" * 300 + "\n"
    write(tmp_path / "a", header + "A\n" * 200)
    write(tmp_path / "b", header + "B\n" * 100)
    assert len(follower.texts()) == 2
    devices |= {"a": 2, "b": 1}
    write(tmp_path / "b", "B 1\n")
    assert follower.texts() == ["B 1\n"]
    (tmp_path / "a").unlink()
    write(tmp_path / "b", "B 2\n")
    assert follower.texts() == ["B 2\n"]


def test_a_file_renamed_while_it_was_empty_is_shipped_under_its_new_name(tmp_path: Path) -> None:
    """A file renamed while it was empty is shipped under its new name."""
    follower = Follower(tmp_path)
    write(tmp_path / "a.log", "")
    assert follower.take() == []
    (tmp_path / "a.log").rename(tmp_path / "b.log")
    write(tmp_path / "b.log", "one\n")
    assert [found.file.path for found in follower.take()] == [str(tmp_path / "b.log")]


def test_a_batch_has_about_the_requested_size_each_has_at_least_one_file_and_together_they_have_all(
    tmp_path: Path,
) -> None:
    """A batch has about the requested size; each has at least one file, and together they have all."""
    follower = Follower(tmp_path)
    for name in "abcde":
        write(tmp_path / name, f"{name * 9}\n")
    batches = [follower.texts(max_bytes=15) for _ in range(4)]
    assert [len(batch) for batch in batches] == [2, 2, 1, 0]
    for name in "abcde":  # Bytes shipped before do not count.
        write(tmp_path / name, f"{name * 9}\n")
    batches = [follower.texts(max_bytes=20) for _ in range(4)]
    assert [len(batch) for batch in batches] == [2, 2, 1, 0]


def test_batch_planned_again_after_a_restart_is_the_same_though_the_file_was_renamed(tmp_path: Path) -> None:
    """A batch planned again after a restart is the same, even if the file was renamed."""
    follower = Follower(tmp_path)
    log = tmp_path / "a.log"
    write(log, "one\n")
    target = scan([str(tmp_path)], [], {}, settle=_NEVER_SETTLED, now=_now())
    log.rename(tmp_path / "a.log.1")
    write(log, "successor\n")
    (found,) = follower.move_to(target)
    assert not found.lost
    from producer.ship.files.log_file import open_file

    with open_file(found.file) as opened:
        assert opened.read(found.file.size) == b"one\n"


def test_a_planned_file_that_is_gone_truncated_or_rewritten_is_reported_as_lost(tmp_path: Path) -> None:
    """A planned file that is gone, truncated or rewritten is reported as lost."""
    for name, change in {
        "deleted": Path.unlink,
        "truncated": lambda path: os.truncate(path, 1),
        "rewritten": lambda path: path.write_text("ONE\n"),
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        write(folder / "a.log", "one\n")
        target = scan([str(folder)], [], {}, settle=_NEVER_SETTLED, now=_now())
        change(folder / "a.log")
        (found,) = ranges({}, target)
        assert (found.lost, found.start, found.file.size) == (True, 0, 4), name


def test_a_file_that_cannot_be_accessed_for_a_while_keeps_its_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that cannot be accessed for a while keeps its offset; a deleted or replaced one does not."""
    log = tmp_path / "a.log"
    write(log, "one\n")
    known = scan([str(tmp_path)], [], {}, settle=10.0, now=_now())
    with monkeypatch.context() as patch:
        patch.setattr(Search, "all", lambda _: Found((), ()))
        assert scan([str(tmp_path)], [], known, settle=10.0, now=_now()) == known
    with monkeypatch.context() as patch:
        patch.setattr(tracking, "open_file", denied)
        assert scan([str(tmp_path)], [], known, settle=10.0, now=_now()) == known
    (tmp_path / "b.log").write_text("other\n")
    (tmp_path / "b.log").replace(log)
    found = scan([str(tmp_path)], [], known, settle=10.0, now=_now())
    assert found.keys().isdisjoint(known)
    log.unlink()
    assert scan([str(tmp_path)], [], known | found, settle=10.0, now=_now()) == {}


def denied(*_: object) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_bytes_that_cannot_be_read_for_a_while_are_not_called_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that cannot be read for a while fail the batch, and are not reported as lost."""
    write(tmp_path / "a.log", "one\n")
    end = scan([str(tmp_path)], [], {}, settle=10.0, now=_now())
    monkeypatch.setattr(tracking, "open_file", denied)
    with pytest.raises(InputError, match=r"a\.log: cannot be read: Permission denied\. Fix that, or leave"):
        ranges({}, end)


def test_a_path_that_does_not_exist_yet_is_followed_when_it_appears(tmp_path: Path) -> None:
    """A path that does not exist yet is followed when it appears."""
    follower = Follower(tmp_path / "later")
    assert follower.texts() == []
    (tmp_path / "later").mkdir()
    write(tmp_path / "later" / "a.log", "one\n")
    assert follower.texts() == ["one\n"]


def test_hard_link_is_another_name_of_its_file(tmp_path: Path) -> None:
    """A file with several hard links is shipped once, even if rotation removes one of them."""
    follower = Follower(tmp_path)
    write(tmp_path / "b.log", "one\n")
    assert follower.texts() == ["one\n"]
    os.link(tmp_path / "b.log", tmp_path / "a.log")
    write(tmp_path / "a.log", "two\n")
    assert follower.texts() == ["two\n"]
    (tmp_path / "new").write_text("three\n")
    (tmp_path / "new").rename(tmp_path / "b.log")
    write(tmp_path / "a.log", "four\n")
    assert follower.texts() == ["four\n", "three\n"]


class FollowedDirectory(RuleBasedStateMachine):
    """Files are appended to, settle, are rotated and truncated in any order; each written byte is shipped.

    Each written piece has a number. A piece without a line end may be shipped alone, or with bytes added later.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.follower = Follower(self.folder)
        self.taken: list[int] = []
        self.number = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @property
    def log(self) -> Path:
        return self.folder / "app.log"

    @rule(pieces=st.integers(1, 4), ended=st.booleans())
    def append(self, pieces: int, ended: bool) -> None:
        for piece in range(pieces):
            self.number += 1
            write(self.log, f"piece {self.number};" + ("\n" if ended or piece < pieces - 1 else ""))

    @precondition(lambda self: self.log.exists())
    @rule()
    def rotate_by_renaming(self) -> None:
        for old in sorted(self.folder.glob("app.log.*"), key=lambda path: -int(path.suffix[1:])):
            old.rename(self.folder / f"app.log.{int(old.suffix[1:]) + 1}")
        self.log.rename(self.folder / "app.log.1")

    @precondition(lambda self: self.log.exists() and self.everything_taken())
    @rule()
    def copytruncate(self) -> None:
        os.truncate(self.log, 0)

    @precondition(lambda self: self.everything_taken())
    @rule()
    def delete_the_oldest(self) -> None:
        oldest = sorted(self.folder.glob("app.log.*"), key=lambda path: int(path.suffix[1:]))[-1:]
        for path in oldest:
            path.unlink()

    @rule(
        settle=st.sampled_from([0, _NEVER_SETTLED]),
        max_bytes=st.sampled_from([1, 30, _ALL]),
        partition_bytes=st.sampled_from([1, 7, 1000]),
        restarted=st.booleans(),
    )
    def take(self, settle: float, max_bytes: int, partition_bytes: int, restarted: bool) -> None:
        target = scan([str(self.folder)], [], self.follower.offset, settle=settle, now=_now())
        reached = advance(self.follower.offset, target, max_bytes)
        if restarted:  # Planned, died, and planned again from the checkpoint.
            ranges(self.follower.offset, reached)
        for found in self.follower.move_to(reached):
            self.taken += self.pieces_of(found, partition_bytes)

    def pieces_of(self, found: Range, partition_bytes: int) -> list[int]:
        """Return the pieces that the tasks read from a range, after all of its bytes were checked."""
        records = records_of(found, partition_bytes=partition_bytes)
        assert "".join(line for _, line in records) == text_of(found).replace("\n", "")
        assert [offset for offset, _ in records] == sorted({offset for offset, _ in records})
        content = Path(found.file.path).read_bytes()
        assert all(content[offset:].startswith(line.encode()) for offset, line in records)
        return [int(number) for _, line in records for number in re.findall(r"piece (\d+);", line)]

    def everything_taken(self) -> bool:
        return sorted(self.taken) == list(range(1, self.number + 1))

    @invariant()
    def nothing_is_taken_twice_or_made_up(self) -> None:
        assert len(set(self.taken)) == len(self.taken)
        assert set(self.taken) <= set(range(1, self.number + 1))

    @invariant()
    def all_that_is_there_can_be_taken(self) -> None:
        target = scan([str(self.folder)], [], self.follower.offset, settle=0, now=_now())
        left = [self.pieces_of(found, 1000) for found in ranges(self.follower.offset, target)]
        assert sorted(sum(left, self.taken)) == list(range(1, self.number + 1))


FollowedDirectory.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


class TestFollowedDirectory(FollowedDirectory.TestCase):
    """Every byte is shipped exactly once, through appends, pauses, rotations, truncations and restarts."""


def test_the_last_multi_line_log_is_shipped_when_the_next_begins_when_the_file_settles(tmp_path: Path) -> None:
    """The last multi-line log is shipped when the next begins, when the file settles, or when it is too long."""
    file = tmp_path / "a.log"
    taken: Offset = {}
    ends = []

    def take(settle: float = _NEVER_SETTLED) -> None:
        nonlocal taken
        taken = scan([str(tmp_path)], [], taken, settle=settle, now=_now(), logs=Logs(StartPattern(r"\d"), 100))
        ends.extend(each["end"] for each in taken.values())

    for added in ("1 a\n", "\tat\n", "2 b\n\tat", "\n\tat\n" * 20):
        with file.open("a") as opened:
            opened.write(added)
        take()
    with file.open("a") as opened:
        opened.write("3 c\n4 d\n\tat\n")
    take()
    take(settle=0)
    text = file.read_text()
    assert ends == [0, 0, text.index("2"), text.index("3"), text.index("4"), len(text)]
