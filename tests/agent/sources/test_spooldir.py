"""spooldir: selection of files, their events, and their completion."""

import gzip
import logging
import os
import random
from pathlib import Path
from typing import Any

import pytest

from producer.agent import AgentConfigError
from producer.agent.config.options import from_flume, read_options
from producer.agent.events.interfaces import Context, Lag
from producer.agent.sources.spooldir import SpoolDirectorySource, source
from producer.agent.sources.spooldir.directory import SpoolDirectory, SpoolDirectoryError
from producer.agent.sources.spooldir.source import Spooler
from tests.runaway import ENDLESS, RUNAWAY
from tests.support.syncs import noted_syncs
from tests.support.waiting import Call, eventually

from .following import Tail


class Spool(Tail):
    """A spooldir source without its thread; settle is 0 unless a test sets it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self._spooler: Spooler | None = None
        super().__init__(folder)
        chosen = {"spool_directory": str(self.logs), "settle": 0.0, **options}
        self.chosen = read_options(SpoolDirectorySource.Options, chosen, "sources.s")

    @property
    def follower(self) -> Spooler:  # type: ignore[override]
        if self._spooler is None:
            self._spooler = Spooler(self.chosen, self._context(), self.outlet, self.stop)
        return self._spooler

    def _context(self) -> Context:
        return Context("a", "t", self.logs.parent / "state", self.counters, self.clock)

    def close(self) -> None:
        if self._spooler is not None:
            self._spooler.close()
            self._spooler = None

    def write(self, name: str, data: bytes, age: int = 0) -> Path:
        path = self.logs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if age:
            os.utime(path, (1_600_000_000 - age, 1_600_000_000 - age))
        return path

    def done(self) -> list[str]:
        """Return the names in the directory after all events are delivered."""
        self.look()
        return sorted(str(path.relative_to(self.logs)) for path in self.logs.rglob("*") if path.is_file())


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path)


def test_each_line_of_a_file_is_an_event_and_the_file_is_renamed(spool: Spool) -> None:
    """Each line is an event, including an unfinished last one; the file is renamed after the delivery."""
    spool.write("a", b"one\ntwo\r\n\nlast")
    spool.look()
    assert spool.done() == ["a"]  # in a memory channel, and not delivered
    assert spool.lines() == [b"one", b"two", b"", b"last"]

    assert spool.done() == ["a.COMPLETED"]
    assert not spool.outlet.names()


def test_nothing_is_lost_in_memory(spool: Spool) -> None:
    """With a memory channel a file is completed only after its delivery, so a crash reads it again."""
    spool.write("a", b"one\ntwo\n")
    spool.look()
    spool.restart()
    spool.look()

    assert (spool.logs / "a").exists()
    assert spool.lines() == [b"one", b"two"]


def test_files_that_wait_are_the_lag(tmp_path: Path) -> None:
    """The lag is the bytes and the age of waiting files; files that were put do not count."""
    spool = Spool(tmp_path, settle=60.0)
    assert spool.follower.lag() == Lag(bytes=0, seconds=0.0)
    now = spool.clock.time()
    for name, age in (("a", 30), ("b", 10), ("c", 90)):
        os.utime(spool.write(name, b"1234\n"), (now - age, now - age))
    spool.look()
    assert spool.follower.lag() == Lag(bytes=10, seconds=30.0)
    spool.look(60)
    assert spool.follower.lag() == Lag(bytes=0, seconds=0.0)


def test_an_empty_file_is_completed(spool: Spool) -> None:
    """An empty file has no event, and is completed."""
    spool.write("a", b"")
    spool.write("b", b"b\n")

    assert spool.seen() == [b"b"]
    assert spool.done() == ["a.COMPLETED", "b.COMPLETED"]


def test_completed_files_are_deleted_if_wanted(tmp_path: Path) -> None:
    """With deletePolicy = immediate completed files are deleted."""
    spool = Spool(tmp_path, delete_policy="immediate")
    spool.write("a", b"one\n")

    assert spool.seen() == [b"one"]
    assert spool.done() == []


def test_completed_files_are_marked_in_a_directory_beside(tmp_path: Path) -> None:
    """With trackingPolicy = tracker_dir the file stays and is marked; it is not read again, even after a restart."""
    spool = Spool(tmp_path, tracking_policy="tracker_dir", recursive_directory_search=True)
    spool.write("d/a", b"one\n")
    assert spool.seen() == [b"one"]
    assert spool.done() == [".flumespool/d/a.COMPLETED", "d/a"]
    spool.restart()

    assert spool.seen() == []


@pytest.mark.parametrize("policy", ["rename", "tracker_dir"])
def test_a_completion_is_on_the_disk_before_the_position_is_forgotten(tmp_path: Path, policy: str) -> None:
    """The new name, or the mark, is on the disk before the position is forgotten; so a power cut repeats no file."""
    spool = Spool(tmp_path, tracking_policy=policy)
    spool.write("a", b"one\n")
    with noted_syncs() as seen:
        assert spool.seen() == [b"one"]
        spool.done()
    (done,) = spool.logs.rglob("*a.COMPLETED")
    named = [("rename", "a.COMPLETED"), ("directory", done.parent.stat().st_ino)]
    assert seen == ([] if policy == "rename" else [("file", done.stat().st_size)]) + named


def test_flumes_own_marks_hold(tmp_path: Path) -> None:
    """Flume's empty mark counts: its file is not read."""
    spool = Spool(tmp_path, tracking_policy="tracker_dir")
    spool.write("a", b"one\n")
    spool.write(".flumespool/a.COMPLETED", b"")

    assert spool.seen() == []


@pytest.mark.parametrize(
    ("order", "wanted"), [("oldest", [b"c", b"a", b"b"]), ("youngest", [b"b", b"a", b"c"]), ("random", None)]
)
def test_files_are_consumed_in_order(tmp_path: Path, order: str, wanted: list[bytes] | None) -> None:
    """Files are read by modification time, or at random."""
    random.seed(3)
    spool = Spool(tmp_path, consume_order=order)
    for name, age in (("a", 20), ("b", 10), ("c", 30)):
        spool.write(name, name.encode() + b"\n", age)

    found = spool.seen()
    assert sorted(found) == [b"a", b"b", b"c"]
    assert wanted is None or found == wanted


def test_files_of_one_time_are_consumed_by_name(spool: Spool) -> None:
    """Files with the same modification time are read by name, as in Flume."""
    for name in ("c", "a", "b"):
        spool.write(name, name.encode() + b"\n", 10)

    assert spool.seen() == [b"a", b"b", b"c"]


def test_patterns_choose_files(tmp_path: Path) -> None:
    """includePattern and ignorePattern apply together; hidden files are never read."""
    spool = Spool(tmp_path, include_pattern=r"\.log$", ignore_pattern="^skip")
    for name in ("a.log", "skip.log", "b.txt", ".hidden.log"):
        spool.write(name, name.encode() + b"\n")

    assert spool.seen() == [b"a.log"]


def test_a_name_at_which_a_pattern_runs_away_is_not_read(
    tmp_path: Path, quick_limit: None, caplog: pytest.LogCaptureFixture
) -> None:
    """If a pattern reaches its search limit at a name, the file is not read, and that is logged."""
    for name in ("include_pattern", "ignore_pattern"):
        spool = Spool(tmp_path / name, **{name: f"^{RUNAWAY}"})
        spool.write(ENDLESS, b"x\n")
        assert spool.seen() == []
        spool.close()
        assert caplog.messages[0].startswith(f"{name}: a search with")
        caplog.clear()


@pytest.mark.parametrize(("recursive", "wanted"), [(False, [b"1"]), (True, [b"1", b"2", b"3"])])
def test_recursivedirectorysearch_selects_files_in_subdirectories(
    tmp_path: Path, recursive: bool, wanted: list[bytes]
) -> None:
    """recursiveDirectorySearch selects files in subdirectories."""
    spool = Spool(tmp_path, recursive_directory_search=recursive)
    for number, name in enumerate(("a", "x/a", "x/y/a"), start=1):
        spool.write(name, b"%d\n" % number)

    assert sorted(spool.seen()) == wanted


def test_headers_tell_the_file(tmp_path: Path) -> None:
    """fileHeader and basenameHeader add headers under their keys."""
    values = {
        "spoolDir": str(tmp_path / "logs"),
        "fileHeader": "true",
        "fileHeaderKey": "path",
        "basenameHeader": "true",
        "basenameHeaderKey": "name",
        "pollDelay": "100",
    }
    options = from_flume(SpoolDirectorySource.Options, values)
    spool = Spool(tmp_path, **options)
    path = spool.write("a", b"one\n")
    spool.look()

    assert [dict(batch.shared) for batch in spool.batches()] == [{"path": str(path), "name": "a"}]
    assert spool.chosen.poll_delay == 0.1


def test_long_lines_are_whole_unless_a_limit_is_set(tmp_path: Path) -> None:
    """Lines are not cut unless max_line_length is set; Flume cuts at 2,048 characters."""
    (tmp_path / "x").mkdir()
    line = b"x" * (1 << 20) + b"end"
    for folder, limit, wanted in ((tmp_path, None, [line]), (tmp_path / "x", 1 << 20, [line[:-3], b"end"])):
        spool = Spool(folder, max_line_length=limit)
        spool.write("a", line + b"\n")
        assert spool.seen() == wanted
        spool.close()


def test_with_blob_a_file_is_one_event_a_larger_file_is_split(tmp_path: Path) -> None:
    """With BLOB a file is one event; a larger file is split."""
    values = {
        "spoolDir": str(tmp_path / "logs"),
        "deserializer": "org.apache.flume.sink.solr.morphline.BlobDeserializer$Builder",
        "deserializer.maxBlobLength": "10",
    }
    spool = Spool(tmp_path, **from_flume(SpoolDirectorySource.Options, values))
    spool.write("a", b"one\ntwo")
    spool.write("b", b"0123456789abc")

    assert sorted(spool.seen()) == [b"0123456789", b"abc", b"one\ntwo"]


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [("KEEP", b"a\xffb"), ("REPLACE", "a\ufffdb".encode()), ("IGNORE", b"ab")],
)
def test_decodeerrorpolicy_decides_about_undecodable_bytes_by_default_they_are_kept(
    tmp_path: Path, policy: str, wanted: bytes
) -> None:
    """decodeErrorPolicy decides about undecodable bytes; by default they are kept."""
    spool = Spool(tmp_path, decode_error_policy=policy)
    spool.write("a", b"a\xffb\n")

    assert spool.seen() == [wanted]


def test_with_fail_an_undecodable_file_is_renamed_and_logged_and_the_other_files_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With FAIL an undecodable file is renamed and logged, and the other files are read; Flume's source stops."""
    spool = Spool(tmp_path, decode_error_policy="FAIL")
    spool.write("a", b"a\xffb\n", 10)
    spool.write("b", b"good\n")

    assert spool.seen() == [b"good"]
    assert spool.done() == ["a.FAILED", "b.COMPLETED"]
    assert "a is not utf-8: invalid start byte" in caplog.text


@pytest.mark.parametrize(("charset", "text"), [("ISO-8859-1", "grün\nblau\n"), ("UTF-16", "grün\n漢字\n")])
def test_another_charset_becomes_utf8(tmp_path: Path, charset: str, text: str) -> None:
    """inputCharset converts files to UTF-8, also with line ends of two bytes."""
    spool = Spool(tmp_path, encoding=charset)
    spool.write("a", text.encode(charset))

    assert spool.seen() == text.encode().splitlines()
    assert spool.done() == ["a.COMPLETED"]


@pytest.mark.parametrize("delimiter", [";", "\0"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_lines_may_have_another_end(tmp_path: Path, delimiter: str, encoding: str) -> None:
    """With delimiter, lines end there, also at the file's end, and line ends are part of events."""
    spool = Spool(tmp_path, delimiter=delimiter, encoding=encoding)
    spool.write("a", delimiter.join(["one\ntwo\r\n", "\u4e2d", "", "", "x" * (3 << 19), "last"]).encode(encoding))
    spool.write("b", f"end{delimiter}{delimiter}".encode(encoding))
    spool.look()
    lines = ["one\ntwo\r\n", "\u4e2d", "", "", "x" * (3 << 19), "last", "end", ""]
    assert spool.lines() == [line.encode() for line in lines]


def test_a_growing_file_is_waited_for(tmp_path: Path) -> None:
    """A growing file is read only after it has settled; Flume lost 6,200 of 8,001 such lines."""
    spool = Spool(tmp_path, settle=5.0)
    path = spool.write("a", b"")
    wanted: list[bytes] = []
    for number in range(20):
        with path.open("ab") as file:
            file.write(b"line %d\n" % number)
        wanted.append(b"line %d" % number)
        assert spool.seen(2) == []
    assert spool.seen(6) == wanted

    assert spool.done() == ["a.COMPLETED"]


def test_a_wall_clock_that_is_set_back_holds_no_file_up(tmp_path: Path) -> None:
    """A modification time in the future, or a clock that is set back, delays no file, and repeats none."""
    spool = Spool(tmp_path, settle=5.0)
    spool.write("a", b"a\n", age=-(1 << 29))
    assert spool.seen() == []
    spool.clock.set_wall(1.0)
    spool.write("b", b"b\n")
    assert spool.seen(4) == []
    assert sorted(spool.seen(1) + spool.seen(4)) == [b"a", b"b"]
    assert spool.done() == ["a.COMPLETED", "b.COMPLETED"]
    assert spool.seen(60) == []


def test_a_file_that_is_written_after_it_was_read_is_read_on(spool: Spool, caplog: pytest.LogCaptureFixture) -> None:
    """Lines added after a file was read are read once, with a warning."""
    path = spool.write("a", b"one\n")
    spool.look()
    with path.open("ab") as file:
        file.write(b"two\n")
    assert spool.seen() == [b"one"]
    assert spool.seen() + spool.seen() == [b"two"]

    assert spool.done() == ["a.COMPLETED"]
    assert "was written while it was read" in caplog.text


def test_a_file_that_takes_the_place_of_one_that_was_put_is_read(
    spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that replaces one that was put is read, not completed, even if it has the same size."""
    path = spool.write("a", b"one\n")
    spool.look()
    spool.write(".new", b"two\n").rename(path)
    assert spool.seen() + spool.seen() + spool.seen() == [b"one", b"two"]
    assert spool.done() == ["a.COMPLETED"]
    assert "was replaced by another file before it was completed" in caplog.text


def test_a_file_whose_bytes_change_during_the_read_is_logged_and_read_again_without_a_loss(
    spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    """A file whose bytes change during the read is logged and read again, without a loss."""
    path = spool.write("a", b"one\ntwo\n")
    spool.look()
    path.write_bytes(b"1\n")
    spool.write("b", b"b\n")
    found = spool.lines()
    found += spool.seen() + spool.seen()

    assert sorted(found) == [b"1", b"b", b"one", b"two"]
    assert spool.done() == ["a.COMPLETED", "b.COMPLETED"]
    assert "was changed after it was read in part" in caplog.text


def test_a_name_that_is_used_again_gets_a_number(spool: Spool, caplog: pytest.LogCaptureFixture) -> None:
    """A repeated name is completed under a numbered name, with a warning; nothing is overwritten."""
    for text in (b"one", b"two", b"three"):
        spool.write("a", text + b"\n")
        assert spool.seen() == [text]
        spool.look()

    assert spool.done() == ["a.1.COMPLETED", "a.2.COMPLETED", "a.COMPLETED"]
    assert (spool.logs / "a.COMPLETED").read_bytes() == b"one\n"
    assert "a completed file with this name exists" in caplog.text


def test_a_marked_name_that_is_used_again_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A mark belongs to the completed file: another file of the same name is read."""
    spool = Spool(tmp_path, tracking_policy="tracker_dir")
    for text in (b"one\n", b"another\n"):
        spool.write("a", text)
        assert spool.seen() == [text.strip()]
        spool.look()
    spool.restart()

    assert spool.seen() == []
    assert "the mark of this name belongs to another file" in caplog.text


@pytest.mark.parametrize("mark", ['{"ino', "[1]", "7", "\udcff"])
def test_a_mark_that_is_none_keeps_nothing_up(tmp_path: Path, caplog: pytest.LogCaptureFixture, mark: str) -> None:
    """An invalid mark is logged and counts as a mark; all other files are read."""
    spool = Spool(tmp_path, tracking_policy="tracker_dir")
    spool.write("marked", b"marked\n")
    spool.write("good", b"good\n")
    spool.write(".flumespool/marked.COMPLETED", mark.encode(errors="surrogateescape"))

    assert spool.seen() + spool.seen() == [b"good"]
    assert ["is not a valid mark" in record.message for record in caplog.records] == [True]


def test_the_same_file_once_more_is_read_once_more(spool: Spool) -> None:
    """A second file with the same bytes, name and inode is read again, as another delivery."""
    for age in (10, 5):
        spool.write("a", b"one\n", age)
        assert spool.seen() == [b"one"]
        spool.look()
        (spool.logs / "a.COMPLETED").unlink()


def test_after_a_stop_within_a_file_the_next_start_reads_the_rest(spool: Spool) -> None:
    """After a stop within a file the next start reads the rest."""
    lines = [b"line %06d %s" % (number, b"x" * 100) for number in range(30_000)]
    spool.write("a", b"".join(line + b"\n" for line in lines))
    put, count = spool.outlet.put_until, 0

    def put_one(batch: Any, stop: Any) -> bool:
        nonlocal count
        count += 1
        return put(batch, stop) if count == 1 else False

    spool.outlet.put_until = put_one  # type: ignore[method-assign]
    spool.stop.set()
    spool.follower.look()
    spool.stop._set = False
    spool.follower.look()
    spool.outlet.put_until = put  # type: ignore[method-assign]
    spool.restart()
    spool.look()

    assert spool.lines() == lines
    assert spool.done() == ["a.COMPLETED"]


def test_another_file_with_the_number_of_one_before_a_death_is_read_whole(spool: Spool) -> None:
    """After a crash, a new file with the inode and first bytes of a completed one is read as a whole."""
    head = [b"# a head that all files have %04d" % number for number in range(100)]
    path = spool.write("a", b"".join(line + b"\n" for line in [*head, b"one"]), age=10)
    assert len(spool.seen()) == 101
    os.utime(path, (1_600_000_000 - 10, 1_600_000_000 - 10))
    spool.restart()
    spool.write("a", b"".join(line + b"\n" for line in [*head, b"another", b"two"]), age=5)

    assert spool.seen() + spool.seen() == [*head, b"another", b"two"]


def test_links_to_themselves_or_to_nothing_are_logged_once_and_counted_all_other_files_are_read(
    spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    """Links to themselves or to nothing are logged once and counted; all other files are read."""
    (spool.logs / "loop").symlink_to("loop")
    (spool.logs / "nothing").symlink_to("nowhere")
    spool.write("good", b"good\n")
    spool.write("two\nlines", b"lines\n")

    assert sorted(spool.seen() + spool.seen(1)) == [b"good", b"lines"]
    assert [record.message for record in caplog.records] == [
        f"{spool.logs}/loop: cannot be checked: Too many levels of symbolic links; retrying"
    ]
    assert spool.counters.get("UnreadableCount") == 1
    (spool.logs / "loop").unlink()
    spool.look()
    assert spool.counters.get("UnreadableCount") == 0


def test_a_link_out_of_the_spool_directory_is_not_followed(
    spool: Spool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A link out of the spool directory is not followed, so its writers cannot read files as the agent; logged once."""
    (tmp_path / "secret").write_bytes(b"secret\n")
    (spool.logs / "link").symlink_to(tmp_path / "secret")
    spool.write("good", b"good\n")
    assert spool.seen() + spool.seen(60) == [b"good"]
    (record,) = caplog.records
    assert f"a link to {tmp_path}/secret, outside the named directories" in record.message


def test_files_that_wait_for_their_delivery_are_limited_in_number_since_each_is_kept_in_memory(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that wait for their delivery are limited in number, since each is kept in memory."""
    monkeypatch.setattr(source, "_MOST_UNSAFE", 2)
    for name in "abcd":
        spool.write(name, name.encode() + b"\n")
    spool.look()
    spool.look()
    assert spool.lines() == [b"a", b"b"]
    assert spool.seen() + spool.seen() == [b"c", b"d"]


def test_a_full_channel_holds_the_source_up(spool: Spool) -> None:
    """A full channel stops the reading without a loss."""
    spool.channels["c0"].capacity = 1
    spool.write("a", b"one\n", 10)
    spool.write("b", b"two\n")
    call = Call(spool.follower.look)
    eventually(lambda: spool.clock.waiting)
    assert call.thread.is_alive()
    found = spool.lines()
    call.thread.join(60)

    assert found + spool.lines() == [b"one", b"two"]
    assert spool.done() == ["a.COMPLETED", "b.COMPLETED"]


def test_a_compressed_file_is_logged_and_not_read_since_its_bytes_are_not_lines(
    spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    """A compressed file is logged and not read, since its bytes are not lines."""
    spool.write("a.gz", gzip.compress(b"one\n"))

    assert spool.seen() == []
    assert spool.done() == ["a.gz"]
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        f"{spool.logs}/a.gz: it is compressed and not read"
    ]


def test_a_directory_belongs_to_one_source(spool: Spool) -> None:
    """A second source on the same directory is refused with an error, until the first one ends."""
    spool.look()
    with pytest.raises(SpoolDirectoryError, match="is already read by another source"):
        Spooler(spool.chosen, spool._context(), spool.outlet, spool.stop)
    spool.close()

    Spooler(spool.chosen, spool._context(), spool.outlet, spool.stop).close()


def test_a_missing_directory_raises_an_error_with_its_path_and_the_reason(tmp_path: Path) -> None:
    """A missing directory raises an error with its path and the reason."""
    spool = Spool(tmp_path, spool_directory=str(tmp_path / "none"))
    with pytest.raises(SpoolDirectoryError, match="none cannot be used: No such file or directory"):
        spool.look()


def _refuse(*_: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_a_directory_that_cannot_be_read_is_logged_once_and_counted_as_unreadable(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A directory that cannot be read is logged once and counted as unreadable; later its files are read."""
    spool.write("a", b"one\n")
    with monkeypatch.context() as patch:
        patch.setattr(SpoolDirectory, "waiting", _refuse)
        assert [spool.seen() for _ in range(3)] == [[], [], []]
        assert spool.counters.get("UnreadableCount") == 1
    assert [record.message for record in caplog.records] == [
        f"{spool.logs}: cannot be read: Permission denied; retrying"
    ]
    assert spool.seen() == [b"one"]
    assert spool.counters.get("UnreadableCount") == 0


def test_files_in_a_directory_without_write_permission_are_read_once_logged_once_and_completed_later(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Files in a directory without write permission are read once, logged once, and completed later."""
    spool.write("a", b"one\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", _refuse)
        assert [spool.seen() for _ in range(4)] == [[b"one"], [], [], []]
    assert spool.done() == ["a.COMPLETED"]
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        f"{spool.logs}/a: cannot be completed: Permission denied; retrying"
    ]


def test_a_file_of_many_blocks_keeps_every_line(spool: Spool) -> None:
    """All lines of a large file arrive in order, in blocks of at most 1 MiB."""
    lines = [b"line %06d %s" % (number, b"y" * (number % 200)) for number in range(30_000)]
    spool.write("a", b"\n".join(lines))
    spool.look()
    batches = spool.batches()

    assert [body for batch in batches for body in batch.bodies()] == lines
    assert max(batch.size for batch in batches) <= (1 << 20) + 1


def test_nothing_is_kept_of_files_that_are_done(spool: Spool) -> None:
    """Completed files leave neither positions nor open descriptors."""
    for number in range(30):
        spool.write(f"{number}", b"%d\n" % number)
    spool.seen()
    spool.look()
    spool.look(61)

    assert not spool.outlet.names()
    assert len(spool.done()) == 30


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "spool_directory: is missing"),
        ({"spool_directory": "/x", "include_pattern": "("}, "include_pattern: must be a regular expression"),
        ({"spool_directory": "/x", "encoding": "idna"}, "encoding: must be a text encoding that Python supports"),
        ({"spool_directory": "/x", "encoding": "x-no"}, "encoding: must be a text encoding that Python supports"),
        ({"spool_directory": "/x", "consume_order": "best"}, "must be one of oldest, youngest, random"),
        ({"spool_directory": "/x", "deserializer": "AVRO"}, "must be one of LINE, BLOB"),
        ({"spool_directory": "/x", "deserializer": "BLOB", "delimiter": ";"}, "delimiter: cannot be used with"),
    ],
)
def test_an_invalid_option_is_refused_before_the_start_with_its_name_the_rule_and_the_value(
    values: dict[str, str], said: str
) -> None:
    """An invalid option is refused before the start, with its name, the rule and the value."""
    with pytest.raises(AgentConfigError, match=said):
        read_options(SpoolDirectorySource.Options, values, "sources.s")
