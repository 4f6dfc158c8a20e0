"""taildir: events, headers, positions, and the cost of waiting."""

import json
import os
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from producer.agent import Agent, AgentConfig, AgentConfigError, ComponentConfig, SinkConfig, SourceConfig
from producer.agent.config.options import from_flume, read_options
from producer.agent.events.batch import EventBatch, Position
from producer.agent.sources.reading.identity import FileName, parse_name
from producer.agent.sources.reading.reader import FileReader
from producer.agent.sources.taildir import TaildirSource, follower
from producer.agent.sources.taildir.watches import Watches
from producer.channels.file.store.notes import FileNotes
from producer.model.errors import ChannelIOError
from producer.runtime.file_identity import Key
from tests.support.waiting import Call, eventually

from ..doubles import taken
from .following import Tail, Writer


@pytest.mark.parametrize("place", [f"{FileNotes.__module__}.FileNotes.write", f"{follower.__name__}.Beginnings"])
def test_a_start_that_fails_lets_go_of_its_notes(tail: Tail, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that fails on a full disk releases the notes, even while the error is referenced."""
    wanted = Writer(tail.logs / "a").lines(3)
    tail.look()
    tail.restart()

    def fail(*_arguments: object) -> None:
        raise ChannelIOError("t", "the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(place, fail)
        with pytest.raises(ChannelIOError, match="is full") as caught:
            tail.look()
    assert tail.seen() == wanted
    assert caught.traceback  # keeps the error and its frames alive


def test_lines_keep_their_bytes(tail: Tail) -> None:
    """CR LF is stripped, a lone CR is kept, an empty line is an empty event, and all other bytes are unchanged."""
    Writer(tail.logs / "a.log").append(b"one\r\ntwo\rtwo\n\n\xff\xfe\x00\n")

    assert tail.seen() == [b"one", b"two\rtwo", b"", b"\xff\xfe\x00"]


def test_older_files_are_read_first(tail: Tail) -> None:
    """At the start older files are read first, so rotated lines precede newer ones."""
    for age, name in enumerate(("a.log", "a.log.1", "a.log.2")):
        path = tail.logs / name
        path.write_bytes(name.encode() + b"\n")
        os.utime(path, (1_600_000_000 - age, 1_600_000_000 - age))

    assert tail.seen() == [b"a.log.2", b"a.log.1", b"a.log"]


def test_directories_are_not_files(tail: Tail, caplog: pytest.LogCaptureFixture) -> None:
    """Directories and pipes are ignored, and do not block the source."""
    (tail.logs / "directory.log").mkdir()
    os.mkfifo(tail.logs / "pipe.log")
    written = Writer(tail.logs / "a.log").lines(1)

    assert tail.seen() == written
    os.mkfifo(tail.logs / "later.log")
    assert tail.seen(1) == []
    assert tail.seen(60) == []
    assert not caplog.records


def test_a_full_channel_holds_the_source_up(tmp_path: Path) -> None:
    """A full channel stops the reading; the lines are put when there is room."""
    tail = Tail(tmp_path)
    tail.channels["c0"].capacity = 10
    a = Writer(tail.logs / "a.log")
    first = a.lines(10)
    tail.look()
    second = a.lines(10)
    call = Call(tail.follower.look)
    eventually(lambda: tail.clock.waiting)
    assert call.thread.is_alive()
    found = tail.lines()
    call.thread.join(60)

    assert found + tail.lines() == first + second


def test_lines_of_several_mebibytes_are_whole(tail: Tail) -> None:
    """A line longer than a block is one event, also if it is written in parts."""
    a = Writer(tail.logs / "a.log")
    line = b"x" * (3 << 20)
    a.append(b"short\n" + line[: 2 << 20])
    assert tail.seen() == [b"short"]
    a.append(line[2 << 20 :] + b"\nshort\n")

    assert tail.seen() == [line, b"short"]


def test_a_line_beyond_the_limit_is_split_no_line_is_lost_and_the_rest_of_the_file_is_read(tmp_path: Path) -> None:
    """A line beyond the limit is split; no line is lost, and the rest of the file is read."""
    tail = Tail(tmp_path, max_line_bytes=2048)
    Writer(tail.logs / "a.log").append(b"y" * (3 << 20) + b"\nnext\n")

    found = tail.seen()
    assert b"".join(found) == b"y" * (3 << 20) + b"next"


def test_a_batch_is_a_block_of_whole_lines(tail: Tail) -> None:
    """A batch has whole lines, and at most 1 MiB."""
    a = Writer(tail.logs / "a.log")
    written = a.lines(60_000)
    tail.look()

    batches = tail.batches()
    assert all(batch.size <= 1 << 20 for batch in batches)
    assert len(batches) == 3
    assert [line for batch in batches for line in batch.bodies()] == written
    assert [batch.position.end for batch in batches if batch.position] == [
        sum(each.size for each in batches[: n + 1]) for n in range(3)
    ]


def test_headers_of_groups_and_paths_and_offsets(tmp_path: Path) -> None:
    """Flume's options add a group's headers, the file's path, and each event's byte offset."""
    values = {
        "filegroups": "f1 f2",
        "filegroups.f1": f"{tmp_path}/logs/a.*",
        "filegroups.f2": f"{tmp_path}/logs/.*",
        "headers.f1.kind": "app",
        "headers.f2.kind": "rest",
        "fileHeader": "true",
        "fileHeaderKey": "path",
        "byteOffsetHeader": "true",
        "positionFile": str(tmp_path / "none.json"),
        "batchSize": "1000",
        "idleTimeout": "60000",
    }
    options = from_flume(TaildirSource.Options, values)
    tail = Tail(tmp_path, **options)
    assert tail.options.idle_timeout == 60.0
    Writer(tail.logs / "a.log").append(b"one\nthree\n")
    Writer(tail.logs / "b.log").append(b"b\n")
    tail.look()

    events = sorted((body, headers) for batch in tail.batches() for headers, body in batch.events())
    a, b = str(tail.logs / "a.log"), str(tail.logs / "b.log")
    assert events == [
        (b"b", {"kind": "rest", "path": b, "byteoffset": "0"}),
        (b"one", {"kind": "app", "path": a, "byteoffset": "0"}),
        (b"three", {"kind": "app", "path": a, "byteoffset": "4"}),
    ]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "paths: is missing: globs of the files to follow, or file_groups"),
        ({"file_groups": {"g": "no directory"}}, "must be a directory, a slash, and an expression"),
        ({"file_groups": {"g": "/x/("}}, "is not a regular expression"),
        ({"paths": ["/var/log/"]}, "must be globs of files, not of directories"),
        ({"paths": ["/x/*"], "headers": {"q": {}}}, "must name a file group"),
        ({"paths": ["/x/*"], "group_start_at": {"q": "end"}}, "group_start_at: must name a file group"),
        ({"paths": ["/x/*"], "group_start_at": {"paths": "noon"}}, "must be beginning or end"),
        ({"paths": ["/x/*"], "delimiter": "||"}, "delimiter: must be one ASCII character"),
        ({"paths": ["/x/*"], "delimiter": ";", "multiline_start": "x"}, "delimiter: cannot be used with"),
        ({"paths": ["/x/*"], "skip_to_end": True}, 'skip_to_end: unknown option; it is start_at = "end"'),
        ({"paths": ["/x/*"], "close_inactive": 60}, "it is called idle_timeout here"),
        ({"paths": ["/x/*"], "multiline_start": ".*"}, "matches an empty line"),
    ],
)
def test_an_invalid_option_is_refused_before_the_start_with_its_name_the_rule_and_the_value(
    values: dict[str, object], said: str
) -> None:
    """An invalid option is refused before the start, with its name, the rule and the value."""
    with pytest.raises(AgentConfigError, match=said):
        read_options(TaildirSource.Options, values, "sources.t")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_start_at_end_skips_only_lines_that_exist_at_the_very_first_start(tmp_path: Path, encoding: str) -> None:
    """start_at = "end" skips only lines that exist at the very first start, not those written while the agent is down.

    It begins after the last line end, also where a line end is two bytes.
    """
    options = from_flume(TaildirSource.Options, {"filegroups": "g", "skipToEnd": "true"})
    assert options["start_at"] == "end"
    tail = Tail(tmp_path, start_at="end", encoding=encoding)
    a, b = Writer(tail.logs / "a.log"), Writer(tail.logs / "b.log")
    a.append("one\n\u0a0a\nhal".encode(encoding))
    assert tail.seen() == []
    a.append("f\ntwo\n".encode(encoding))
    assert tail.seen() == [b"half", b"two"]
    tail.restart()
    a.append("three\n".encode(encoding))
    b.append("four\n".encode(encoding))

    assert sorted(tail.seen()) == [b"four", b"three"]


@pytest.mark.parametrize("delimiter", ["\0", ";"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_lines_may_have_another_end(tmp_path: Path, delimiter: str, encoding: str) -> None:
    """With delimiter, lines end there, and line ends are part of events; positions and offsets are those of bytes."""
    offsets = encoding == "utf-8"
    tail = Tail(tmp_path, delimiter=delimiter, encoding=encoding, byte_offset_header=offsets)
    a = Writer(tail.logs / "a.log")
    text = delimiter.join(["one\ntwo", "\u4e2d", "", "", "", "", "six", "hal"])
    a.append(text.encode(encoding))
    tail.look()
    (batch,) = tail.batches()
    assert batch.bodies() == [line.encode() for line in text.split(delimiter)[:-1]]
    assert not offsets or list(batch.values("byteoffset")) == ["0", "8", "12", "13", "14", "15", "16"]
    tail.restart()
    a.append(f"f{delimiter}end".encode(encoding))
    assert tail.seen() == [b"half"]
    assert tail.seen(60) == [b"end"]


def test_start_at_end_begins_after_the_last_delimiter(tmp_path: Path) -> None:
    """start_at = "end" begins after the last delimiter."""
    tail = Tail(tmp_path, delimiter="\0", start_at="end")
    a = Writer(tail.logs / "a.log")
    a.append(b"one\0two\nhal")
    assert tail.seen() == []
    a.append(b"f\0")
    assert tail.seen() == [b"two\nhalf"]


def test_groups_may_start_at_their_own_place(tmp_path: Path) -> None:
    """group_start_at replaces start_at for the files of a group."""
    groups = {"old": f"{tmp_path}/logs/a.*", "rest": f"{tmp_path}/logs/.*"}
    tail = Tail(tmp_path, file_groups=groups, start_at="end", group_start_at={"old": "beginning"})
    a, b = Writer(tail.logs / "a.log"), Writer(tail.logs / "b.log")
    read, _ = a.lines(3), b.lines(3)
    assert tail.seen() == read
    written = b.lines(1)
    assert tail.seen() == written


def test_files_that_are_older_than_ignore_older_are_opened_when_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new file that was not written for longer than ignore_older is not opened; once written, it is read whole.

    A file with a position is read on, however old it is.
    """
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *rest, **more: opened.append(str(path)) or real(path, *rest, **more))
    groups = {"young": f"{tmp_path}/logs/a.*", "all": f"{tmp_path}/logs/.*"}
    tail = Tail(tmp_path, file_groups=groups, ignore_older=3600, group_ignore_older={"all": 1e9})
    young, old, known = (Writer(tail.logs / name) for name in ("a.young", "a.old", "a.known"))
    first, second, third = young.lines(1), old.lines(2), known.lines(1)
    now = tail.clock.time()
    for writer, age in ((young, 3000), (old, 4000), (known, 0)):
        os.utime(writer.path, (now - age, now - age))
    assert sorted(tail.seen()) == sorted(first + third)
    assert str(old.path) not in opened
    tail.restart()
    unread = known.lines(1)
    os.utime(known.path, (now - 9000, now - 9000))
    assert tail.seen() == unread
    assert str(old.path) not in opened
    second += old.lines(1)
    os.utime(old.path, (now, now))
    assert tail.seen(1.0) == second


def test_old_files_at_a_first_start_at_the_end_give_only_new_lines(tmp_path: Path) -> None:
    """With start_at = "end", the end of an old file is noted at the first start, so that later only new lines come."""
    tail = Tail(tmp_path, start_at="end", ignore_older=3600)
    a = Writer(tail.logs / "a.log")
    a.lines(2)
    os.utime(a.path, (0, 0))
    assert tail.seen() == []
    written = a.lines(1)
    assert tail.seen(1.0) == written


@pytest.mark.parametrize("start_at", ["beginning", "end"])
def test_a_first_start_that_reads_much_says_so(tmp_path: Path, start_at: str, caplog: pytest.LogCaptureFixture) -> None:
    """A first start that reads over 1 GiB from the beginning of files logs their number and size, and the options."""
    tail = Tail(tmp_path, start_at=start_at)
    for name in ("a.log", "b.log"):
        path = tail.logs / name
        path.touch()
        os.truncate(path, 700 << 20)
    assert tail.seen() == []
    tail.restart()
    tail.look()
    said = [message for message in caplog.messages if "GiB" in message]
    assert len(said) == (start_at == "beginning")
    assert all("reads 2 files with 1.4 GiB" in each and 'start_at = "end"' in each for each in said)


def test_flumes_position_file_is_taken_over_at_the_first_start(tmp_path: Path) -> None:
    """The first start continues at Flume's positions, except one beyond a file's end; later starts ignore them."""
    logs = tmp_path / "logs"
    logs.mkdir()
    a, b = Writer(logs / "a.log"), Writer(logs / "b.log")
    a.lines(10)
    rest_of_b = b.lines(4)
    read = a.path.stat().st_size
    rest = a.lines(3)
    rows = [
        {"inode": a.path.stat().st_ino, "pos": read, "file": str(a.path)},
        {"inode": b.path.stat().st_ino, "pos": 10**9, "file": str(b.path)},
    ]
    positions = tmp_path / "taildir_position.json"
    positions.write_text(json.dumps(rows))
    tail = Tail(tmp_path, position_file=str(positions))
    assert sorted(tail.seen()) == sorted(rest + rest_of_b)
    more = a.lines(2)
    tail.restart()

    assert tail.seen() == more


def test_after_a_restart_no_line_is_repeated_or_lost(tail: Tail) -> None:
    """After a restart no line is repeated or lost."""
    a = Writer(tail.logs / "a.log")
    first = a.lines(10)
    assert tail.seen() == first
    for _ in range(3):
        written = a.lines(5)
        tail.restart()
        assert tail.seen() == written


def test_channels_that_are_not_equally_far_get_each_line_once(tmp_path: Path) -> None:
    """After a crash between the commits of two channels, each channel gets each line once."""
    tail = Tail(tmp_path, channels=2)
    a = Writer(tail.logs / "a.log")
    first = a.lines(10)
    tail.look()
    assert tail.lines("c0") == tail.lines("c1") == first
    tail.restart()
    (name,) = tail.outlet.names()
    done = a.lines(4)
    end = a.path.stat().st_size
    batch = EventBatch.of_lines(b"as if c1 had committed a batch of these four\n")
    tail.channels["c1"].put(batch.at(Position(f"t/{name}", end, "", tail.outlet.ends(name)[0])))
    taken(tail.channels["c1"])
    rest = a.lines(3)
    tail.look()

    assert tail.lines("c0") == done + rest
    assert tail.lines("c1") == rest


def test_events_of_several_lines_begin_with_a_match(tmp_path: Path) -> None:
    """A stack trace is one event with its first line; the last event is taken when its file has settled."""
    tail = Tail(tmp_path, multiline_start=r"\d{4}-", multiline_timeout=5.0)
    a = Writer(tail.logs / "a.log")
    a.append(b"2026-01-01 one\n  at x\n  at y\n2026-01-02 two\n2026-01-03 three\n")
    assert tail.seen() == [b"2026-01-01 one\n  at x\n  at y", b"2026-01-02 two"]
    a.append(b"  at z\n")
    assert tail.seen(4) == []
    assert tail.seen(4) == []
    assert tail.seen(2) == [b"2026-01-03 three\n  at z"]


def test_a_link_is_followed_and_its_file_read_once(tmp_path: Path) -> None:
    """A link, as in /var/log/containers, is followed and its file read once; a new target is read, too."""
    elsewhere, containers = tmp_path / "pods", tmp_path / "containers"
    elsewhere.mkdir()
    containers.mkdir()
    tail = Tail(tmp_path, f"{containers}/*.log")
    one = Writer(elsewhere / "0.log", "one")
    first = one.lines(3)
    (containers / "a.log").symlink_to(one.path)
    (containers / "b.log").symlink_to(one.path)
    assert tail.seen() == first
    late = one.lines(1)
    one.path.rename(elsewhere / "0.log.1")
    second = Writer(elsewhere / "0.log", "two").lines(2)

    assert sorted(tail.seen(1) + tail.seen(1)) == sorted(late + second)


@pytest.mark.parametrize("pattern", ["*.log", "*/*.log"])
def test_a_link_out_of_the_named_directories_is_not_followed(
    tmp_path: Path, pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Links to files and directories elsewhere are not followed, with one warning; allow_links_to allows them."""
    secret = tmp_path / "secret"
    secret.mkdir()
    lines = Writer(secret / "a.log").lines(1)
    for allowed in (False, True):
        folder = tmp_path / str(allowed)
        folder.mkdir()
        more = {"allow_links_to": (str(secret),)} if allowed else {}
        tail = Tail(folder, f"{folder}/logs/{pattern}", **more)
        link = tail.logs / "a.log" if pattern == "*.log" else tail.logs / "linked"
        link.symlink_to(secret / "a.log" if pattern == "*.log" else secret)
        assert tail.seen() + tail.seen(40) == (lines if allowed else [])
        tail.close()
    (record,) = [each for each in caplog.records if "a link to" in each.message]
    assert f"a link to {secret}/a.log, outside the named directories" in record.message


def test_directories_of_a_glob_come_and_go(tmp_path: Path) -> None:
    """A directory that appears later and matches a glob is scanned."""
    tail = Tail(tmp_path, str(tmp_path / "logs" / "*" / "app.log"))
    tail.look()
    (tail.logs / "pod").mkdir()
    written = Writer(tail.logs / "pod" / "app.log").lines(2)

    assert tail.seen(11) == written


def test_positions_of_files_that_are_gone_are_forgotten_after_a_day(tail: Tail) -> None:
    """Positions and notes of deleted files are forgotten after a day; those of existing files never."""
    a, b = Writer(tail.logs / "a.log"), Writer(tail.logs / "b.log")
    a.lines(3)
    b.lines(3)
    tail.seen()
    a.path.unlink()
    tail.look(200)
    tail.look(200)
    assert len(tail.outlet.names()) == 2
    tail.look(80_000)
    assert len(tail.outlet.names()) == 2
    tail.look(7_000)

    (name,) = tail.outlet.names()
    parsed = parse_name(name)
    assert parsed is not None
    assert parsed.inode == b.path.stat().st_ino
    written = b.lines(2)
    assert tail.seen(10) == written


def test_an_idle_file_is_closed_and_opened_again_when_it_is_written(tail: Tail) -> None:
    """An idle file is closed, and opened again when it is written."""
    writers = [Writer(tail.logs / f"{n}.log") for n in range(50)]
    for writer in writers:
        writer.lines(1)
    tail.seen()
    assert _open_below(tail.logs) == 50
    tail.look(121)
    assert _open_below(tail.logs) == 0
    written = writers[7].lines(3)

    assert tail.seen(1) == written


def test_a_file_is_read_on_by_its_size_even_if_its_modification_time_does_not_change_or_goes_back(tail: Tail) -> None:
    """A file is read on by its size, even if its modification time does not change or goes back."""
    writer = Writer(tail.logs / "a.log")
    written = writer.lines(1)
    before = writer.path.stat().st_mtime_ns
    assert tail.seen() == written
    tail.look(121)  # until it is closed, and polled in turn
    written = writer.lines(2)
    os.utime(writer.path, ns=(before, before))

    assert tail.seen(1) == written


def test_no_more_files_are_open_than_allowed(tmp_path: Path) -> None:
    """No more files are open than allowed, and all files are read."""
    tail = Tail(tmp_path, max_open_files=5)
    writers = [Writer(tail.logs / f"{n}.log") for n in range(40)]
    written = [line for writer in writers for line in writer.lines(2)]
    assert sorted(tail.seen()) == sorted(written)
    assert _open_below(tail.logs) <= 5
    written = [line for writer in writers for line in writer.lines(2)]

    assert sorted(tail.seen(1)) == sorted(written)


def test_of_2_000_quiet_files_only_some_hundreds_are_polled_in_a_second_each_in_its_turn(
    tail: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 2,000 quiet files only some hundreds are polled in a second, each in its turn."""
    monkeypatch.setattr(Watches, "add", lambda *_: False)
    for number in range(2000):
        (tail.logs / f"{number}.log").write_bytes(b"%d\n" % number)
    tail.seen()
    tail.look(121)
    looks: list[object] = []
    real = os.stat

    def counting(path: object, *arguments: object, **named: object) -> os.stat_result:
        looks.append(path)
        return real(path, *arguments, **named)  # type: ignore[arg-type]

    tail.look(1)
    monkeypatch.setattr(os, "stat", counting)
    tail.look(1)
    assert len(looks) < 1000
    tail.look(1)
    tail.look(1)
    assert len(set(looks)) > 2000


def test_of_1_000_watched_files_only_some_are_polled_in_a_second(tail: Tail, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1,000 watched files only some are polled in a second; one that is written is read at once."""
    for number in range(1000):
        (tail.logs / f"{number}.log").write_bytes(b"%d\n" % number)
    tail.seen()
    tail.look(6)
    looks: list[FileReader] = []
    real = FileReader.look

    def counting(reader: FileReader, now: float) -> bool:
        looks.append(reader)
        return real(reader, now)

    monkeypatch.setattr(FileReader, "look", counting)
    tail.look(1)
    assert len(looks) <= 100
    written = Writer(tail.logs / "999.log").lines(3)

    assert tail.seen(0.1) == written


def test_a_write_between_the_last_poll_and_the_watch_is_found(tail: Tail, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write between the last poll and the watch is found."""
    writers = {path.stat().st_ino: Writer(path) for path in _rested(tail, 100)}
    real, written = Watches.add, list[bytes]()

    def late(watches: Watches, key: Key, descriptor: int) -> bool:
        written.extend(writers[key[1]].lines(1))
        return real(watches, key, descriptor)

    monkeypatch.setattr(Watches, "add", late)
    tail.look(6)
    tail.clock.advance(0.1)
    tail.follower.look()

    assert sorted(tail.lines()) == sorted(written)
    assert len(written) == 100


def _rested(tail: Tail, count: int) -> list[Path]:
    paths = [tail.logs / f"{number}.log" for number in range(count)]
    for path in paths:
        path.write_bytes(path.name.encode() + b"\n")
    tail.seen()
    return paths


def test_a_watched_file_that_is_renamed_and_written_on_is_read(tail: Tail) -> None:
    """A watched file that is renamed and written on is read, and so is the new file at its path."""
    old = Writer(tail.logs / "a.log")
    old.lines(2)
    tail.seen()
    tail.look(6)
    old.path = old.path.rename(tail.logs / "a.log.1")
    late, new = old.lines(3), Writer(tail.logs / "a.log", "new").lines(2)

    assert sorted(tail.seen(1)) == sorted(late + new)


def test_a_watched_file_that_is_truncated_is_read_from_byte_0(tail: Tail) -> None:
    """A watched file that is truncated is read from byte 0."""
    writer = Writer(tail.logs / "a.log")
    writer.lines(5)
    tail.seen()
    tail.look(6)
    os.truncate(writer.path, 0)
    tail.look(1)

    assert tail.seen(1) == []
    assert writer.lines(2) == tail.seen(1)


def test_if_changes_are_found_without_a_notification_watches_are_not_trusted_any_more(
    tail: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If changes are found without a notification, watches are not trusted any more, and files are polled."""
    monkeypatch.setattr(Watches, "notified", lambda _: [])
    writers = [Writer(tail.logs / f"{number}.log") for number in range(300)]
    for writer in writers:
        writer.lines(1)
    tail.seen()
    tail.look(6)
    found = written = 0
    for writer in writers:
        written += len(writer.lines(1))
    while found < 3:  # in the turns of watched files
        found += len(tail.seen(0.1))
    found += len(tail.seen(0.5))

    assert found == written


def test_without_a_watch_left_all_is_read(tail: Tail, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the user's limit of watches is reached, files are polled and all lines are read."""
    writer = Writer(tail.logs / "a.log")
    writer.lines(1)
    tail.seen()
    monkeypatch.setattr("producer.agent.sources.taildir.watches._library", lambda: None)
    tail.look(6)
    written = writer.lines(2)

    assert tail.seen(1) == written


def test_if_the_kernel_drops_notifications_every_file_is_polled(tmp_path: Path) -> None:
    """If the kernel drops notifications every file is polled."""
    watches = Watches()
    path = tmp_path / "a.log"
    path.write_bytes(b"")
    with path.open("rb") as file:
        assert watches.add((1, 2), file.fileno())
        overflow = struct.pack("iIII", -1, 0x4000, 0, 0)
        watches._read = lambda: overflow  # type: ignore[method-assign]

        assert watches.notified() == [(1, 2)]
        assert (1, 2) not in watches
    watches.close()


def _open_below(folder: Path) -> int:
    """Return the number of this process's descriptors for files in a folder."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            count += str(entry.readlink()).startswith(str(folder))
    return count


def test_names_are_parsed_as_they_were_written_other_texts_give_none() -> None:
    """Names are parsed as they were written; other texts give None."""
    name = FileName(12, 34, 5, 1024, 0xDEADBEEF)
    assert parse_name(str(name)) == name
    assert parse_name("something else") is None


def test_an_agent_follows_a_file(tmp_path: Path) -> None:
    """An agent on threads delivers appended lines, and stops in time."""
    a = Writer(tmp_path / "a.log")
    a.lines(10)
    config = AgentConfig(
        name="a",
        state=tmp_path / "state",
        sources={"r": SourceConfig("r", "taildir", {"paths": [str(a.path)]}, channels=("c",))},
        channels={"c": ComponentConfig("c", "memory", {})},
        sinks={"k": SinkConfig("k", "null", {}, channel="c")},
    )
    agent = Agent(config)
    agent.start()
    delivered = agent.health_of("sinks.k").counters
    eventually(lambda: delivered.get("EventDrainSuccessCount") == 10)
    a.lines(5)
    eventually(lambda: delivered.get("EventDrainSuccessCount") == 15)

    assert agent.stop(60)
