"""spooldir: which files are taken, when, as what, and how they are completed."""

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
    """A spool directory's source without its thread; files have rested at once unless a test says otherwise."""

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
        """What is in the directory once all is delivered."""
        self.look()
        return sorted(str(path.relative_to(self.logs)) for path in self.logs.rglob("*") if path.is_file())


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path)


def test_each_line_of_a_file_is_an_event_and_the_file_is_renamed(spool: Spool) -> None:
    """Once it is delivered; the last line counts without an end."""
    spool.write("a", b"one\ntwo\r\n\nlast")
    spool.look()
    assert spool.done() == ["a"]  # a channel that forgets has it, and has not delivered it
    assert spool.lines() == [b"one", b"two", b"", b"last"]

    assert spool.done() == ["a.COMPLETED"]
    assert not spool.outlet.names()


def test_nothing_is_lost_in_memory(spool: Spool) -> None:
    """A file is not completed before its lines are delivered: a death before that reads them again."""
    spool.write("a", b"one\ntwo\n")
    spool.look()
    spool.restart()
    spool.look()

    assert (spool.logs / "a").exists()
    assert spool.lines() == [b"one", b"two"]


def test_files_that_wait_are_the_lag(tmp_path: Path) -> None:
    """Their bytes, and how old the oldest one is; what was put is none, though it is not completed yet."""
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
    """It has no event, and keeps nothing up."""
    spool.write("a", b"")
    spool.write("b", b"b\n")

    assert spool.seen() == [b"b"]
    assert spool.done() == ["a.COMPLETED", "b.COMPLETED"]


def test_completed_files_are_deleted_if_wanted(tmp_path: Path) -> None:
    """deletePolicy immediate."""
    spool = Spool(tmp_path, delete_policy="immediate")
    spool.write("a", b"one\n")

    assert spool.seen() == [b"one"]
    assert spool.done() == []


def test_completed_files_are_marked_in_a_directory_beside(tmp_path: Path) -> None:
    """trackingPolicy tracker_dir: the file stays as it is, and is not read again, by the next start neither."""
    spool = Spool(tmp_path, tracking_policy="tracker_dir", recursive_directory_search=True)
    spool.write("d/a", b"one\n")
    assert spool.seen() == [b"one"]
    assert spool.done() == [".flumespool/d/a.COMPLETED", "d/a"]
    spool.restart()

    assert spool.seen() == []


@pytest.mark.parametrize("policy", ["rename", "tracker_dir"])
def test_what_is_completed_is_so_after_a_power_cut(tmp_path: Path, policy: str) -> None:
    """The new name, or the mark, is on the disk when the position is forgotten: else the file would be read again."""
    spool = Spool(tmp_path, tracking_policy=policy)
    spool.write("a", b"one\n")
    with noted_syncs() as seen:
        assert spool.seen() == [b"one"]
        spool.done()
    (done,) = spool.logs.rglob("*a.COMPLETED")
    named = [("rename", "a.COMPLETED"), ("directory", done.parent.stat().st_ino)]
    assert seen == ([] if policy == "rename" else [("file", done.stat().st_size)]) + named


def test_flumes_own_marks_hold(tmp_path: Path) -> None:
    """An empty mark, as Flume leaves it, says that a file is done."""
    spool = Spool(tmp_path, tracking_policy="tracker_dir")
    spool.write("a", b"one\n")
    spool.write(".flumespool/a.COMPLETED", b"")

    assert spool.seen() == []


@pytest.mark.parametrize(
    ("order", "wanted"), [("oldest", [b"c", b"a", b"b"]), ("youngest", [b"b", b"a", b"c"]), ("random", None)]
)
def test_files_are_consumed_in_order(tmp_path: Path, order: str, wanted: list[bytes] | None) -> None:
    """By the time of their last change, or by chance."""
    random.seed(3)
    spool = Spool(tmp_path, consume_order=order)
    for name, age in (("a", 20), ("b", 10), ("c", 30)):
        spool.write(name, name.encode() + b"\n", age)

    found = spool.seen()
    assert sorted(found) == [b"a", b"b", b"c"]
    assert wanted is None or found == wanted


def test_files_of_one_time_are_consumed_by_name(spool: Spool) -> None:
    """Flume's order among those of one second."""
    for name in ("c", "a", "b"):
        spool.write(name, name.encode() + b"\n", 10)

    assert spool.seen() == [b"a", b"b", b"c"]


def test_patterns_choose_files(tmp_path: Path) -> None:
    """includePattern and ignorePattern together; hidden files never."""
    spool = Spool(tmp_path, include_pattern=r"\.log$", ignore_pattern="^skip")
    for name in ("a.log", "skip.log", "b.txt", ".hidden.log"):
        spool.write(name, name.encode() + b"\n")

    assert spool.seen() == [b"a.log"]


def test_a_name_at_which_a_pattern_runs_away_is_not_read(
    tmp_path: Path, quick_limit: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever of the two patterns it is: the search ends, and is told."""
    for name in ("include_pattern", "ignore_pattern"):
        spool = Spool(tmp_path / name, **{name: f"^{RUNAWAY}"})
        spool.write(ENDLESS, b"x\n")
        assert spool.seen() == []
        spool.close()
        assert caplog.messages[0].startswith(f"{name}: a search with")
        caplog.clear()


@pytest.mark.parametrize(("recursive", "wanted"), [(False, [b"1"]), (True, [b"1", b"2", b"3"])])
def test_directories_are_looked_into_if_wanted(tmp_path: Path, recursive: bool, wanted: list[bytes]) -> None:
    """recursiveDirectorySearch."""
    spool = Spool(tmp_path, recursive_directory_search=recursive)
    for number, name in enumerate(("a", "x/a", "x/y/a"), start=1):
        spool.write(name, b"%d\n" % number)

    assert sorted(spool.seen()) == wanted


def test_headers_tell_the_file(tmp_path: Path) -> None:
    """fileHeader and basenameHeader with their keys."""
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
    """Flume cuts at 2,048 characters; we do if we are told to."""
    (tmp_path / "x").mkdir()
    line = b"x" * (1 << 20) + b"end"
    for folder, limit, wanted in ((tmp_path, None, [line]), (tmp_path / "x", 1 << 20, [line[:-3], b"end"])):
        spool = Spool(folder, max_line_length=limit)
        spool.write("a", line + b"\n")
        assert spool.seen() == wanted
        spool.close()


def test_a_blob_is_one_event(tmp_path: Path) -> None:
    """A whole file; one that is larger than allowed comes in parts."""
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
def test_bytes_that_are_no_text(tmp_path: Path, policy: str, wanted: bytes) -> None:
    """decodeErrorPolicy; by default they stay as they are."""
    spool = Spool(tmp_path, decode_error_policy=policy)
    spool.write("a", b"a\xffb\n")

    assert spool.seen() == [wanted]


def test_a_file_that_is_no_text_is_put_aside_if_wanted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """FAIL: it is told, kept under another name, and the others are read: in Flume it ends the source."""
    spool = Spool(tmp_path, decode_error_policy="FAIL")
    spool.write("a", b"a\xffb\n", 10)
    spool.write("b", b"good\n")

    assert spool.seen() == [b"good"]
    assert spool.done() == ["a.FAILED", "b.COMPLETED"]
    assert "a is not UTF-8: invalid start byte" in caplog.text


@pytest.mark.parametrize(("charset", "text"), [("ISO-8859-1", "grün\nblau\n"), ("UTF-16", "grün\n漢字\n")])
def test_another_charset_becomes_utf8(tmp_path: Path, charset: str, text: str) -> None:
    """inputCharset, also with line ends of two bytes."""
    spool = Spool(tmp_path, input_charset=charset)
    spool.write("a", text.encode(charset))

    assert spool.seen() == text.encode().splitlines()
    assert spool.done() == ["a.COMPLETED"]


def test_a_growing_file_is_waited_for(tmp_path: Path) -> None:
    """In Flume 1,801 of 8,001 lines came, and the file was renamed: here it is taken once it has rested."""
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
    """A file from the future, and one during which the clock was set: each is taken once it has rested, and once."""
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
    """It is told, and what was added comes, once."""
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
    """Though it is as long: what was not read is not completed."""
    path = spool.write("a", b"one\n")
    spool.look()
    spool.write(".new", b"two\n").rename(path)
    assert spool.seen() + spool.seen() + spool.seen() == [b"one", b"two"]
    assert spool.done() == ["a.COMPLETED"]
    assert "was replaced by another file before it was completed" in caplog.text


def test_a_file_whose_bytes_are_replaced_is_read_anew(spool: Spool, caplog: pytest.LogCaptureFixture) -> None:
    """It is told, nothing is lost, and the source goes on."""
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
    """In Flume it ends the source; here it is told, and nothing is overwritten."""
    for text in (b"one", b"two", b"three"):
        spool.write("a", text + b"\n")
        assert spool.seen() == [text]
        spool.look()

    assert spool.done() == ["a.1.COMPLETED", "a.2.COMPLETED", "a.COMPLETED"]
    assert (spool.logs / "a.COMPLETED").read_bytes() == b"one\n"
    assert "a completed file with this name exists" in caplog.text


def test_a_marked_name_that_is_used_again_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A mark holds for the file that was completed, not for its name."""
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
    """It is told, and its file left alone, as with Flume's empty marks; all others are read."""
    spool = Spool(tmp_path, tracking_policy="tracker_dir")
    spool.write("marked", b"marked\n")
    spool.write("good", b"good\n")
    spool.write(".flumespool/marked.COMPLETED", mark.encode(errors="surrogateescape"))

    assert spool.seen() + spool.seen() == [b"good"]
    assert ["is not a valid mark" in record.message for record in caplog.records] == [True]


def test_the_same_file_once_more_is_read_once_more(spool: Spool) -> None:
    """Equal bytes, an equal name, perhaps even the inode of the one before: it is another delivery all the same."""
    for age in (10, 5):
        spool.write("a", b"one\n", age)
        assert spool.seen() == [b"one"]
        spool.look()
        (spool.logs / "a.COMPLETED").unlink()


def test_a_source_goes_on_within_a_file(spool: Spool) -> None:
    """A stop in the middle of a file: the next start puts the rest."""
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
    """Killed when a file had been completed: the next one has its inode and first bytes, and another time of change."""
    head = [b"# a head that all files have %04d" % number for number in range(100)]
    path = spool.write("a", b"".join(line + b"\n" for line in [*head, b"one"]), age=10)
    assert len(spool.seen()) == 101
    os.utime(path, (1_600_000_000 - 10, 1_600_000_000 - 10))
    spool.restart()
    spool.write("a", b"".join(line + b"\n" for line in [*head, b"another", b"two"]), age=5)

    assert spool.seen() + spool.seen() == [*head, b"another", b"two"]


def test_what_cannot_be_looked_at_keeps_nothing_else_up(spool: Spool, caplog: pytest.LogCaptureFixture) -> None:
    """A link to itself, and one to nothing: told once, counted while there; all others are read."""
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
    """Who may write there cannot have the agent read what only the agent may read. It is said once."""
    (tmp_path / "secret").write_bytes(b"secret\n")
    (spool.logs / "link").symlink_to(tmp_path / "secret")
    spool.write("good", b"good\n")
    assert spool.seen() + spool.seen(60) == [b"good"]
    (record,) = caplog.records
    assert f"a link to {tmp_path}/secret, below no directory that was named" in record.message


def test_what_was_put_and_is_not_safe_is_bounded(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that wait for their delivery are held: of a directory of a million only so many are read ahead."""
    monkeypatch.setattr(source, "_MOST_UNSAFE", 2)
    for name in "abcd":
        spool.write(name, name.encode() + b"\n")
    spool.look()
    spool.look()
    assert spool.lines() == [b"a", b"b"]
    assert spool.seen() + spool.seen() == [b"c", b"d"]


def test_a_full_channel_holds_the_source_up(spool: Spool) -> None:
    """The source does not end, and nothing is lost."""
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


def test_a_compressed_file_is_told_and_left(spool: Spool, caplog: pytest.LogCaptureFixture) -> None:
    """Its bytes are no lines."""
    spool.write("a.gz", gzip.compress(b"one\n"))

    assert spool.seen() == []
    assert spool.done() == ["a.gz"]
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        f"{spool.logs}/a.gz: it is compressed and not read"
    ]


def test_a_directory_belongs_to_one_source(spool: Spool) -> None:
    """The second one is refused in words, until the first one ends."""
    spool.look()
    with pytest.raises(SpoolDirectoryError, match="is already read by another source"):
        Spooler(spool.chosen, spool._context(), spool.outlet, spool.stop)
    spool.close()

    Spooler(spool.chosen, spool._context(), spool.outlet, spool.stop).close()


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    """The path, and why."""
    spool = Spool(tmp_path, spool_directory=str(tmp_path / "none"))
    with pytest.raises(SpoolDirectoryError, match="none cannot be used: No such file or directory"):
        spool.look()


def _refuse(*_: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_a_directory_that_cannot_be_read_for_a_while_is_told_by_its_path(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, and it counts as unreadable; afterwards its files are read."""
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


def test_a_directory_that_may_not_be_written_is_told(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its files are read once, it is told once, and they are completed when they can be."""
    spool.write("a", b"one\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", _refuse)
        assert [spool.seen() for _ in range(4)] == [[b"one"], [], [], []]
    assert spool.done() == ["a.COMPLETED"]
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        f"{spool.logs}/a: cannot be completed: Permission denied; retrying"
    ]


def test_a_file_of_many_blocks_keeps_every_line(spool: Spool) -> None:
    """In order, in blocks of no more than 1 MiB."""
    lines = [b"line %06d %s" % (number, b"y" * (number % 200)) for number in range(30_000)]
    spool.write("a", b"\n".join(lines))
    spool.look()
    batches = spool.batches()

    assert [body for batch in batches for body in batch.bodies()] == lines
    assert max(batch.size for batch in batches) <= (1 << 20) + 1


def test_nothing_is_kept_of_files_that_are_done(spool: Spool) -> None:
    """Neither positions nor descriptors."""
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
        ({"spool_directory": "/x", "input_charset": "idna"}, "input_charset: must be one that Python knows"),
        ({"spool_directory": "/x", "input_charset": "x-no"}, "input_charset: must be one that Python knows"),
        ({"spool_directory": "/x", "consume_order": "best"}, "must be one of oldest, youngest, random"),
        ({"spool_directory": "/x", "deserializer": "AVRO"}, "must be one of LINE, BLOB"),
    ],
)
def test_a_wrong_configuration_is_told_before_the_start(values: dict[str, str], said: str) -> None:
    """What, which rule, which value."""
    with pytest.raises(AgentConfigError, match=said):
        read_options(SpoolDirectorySource.Options, values, "sources.s")
