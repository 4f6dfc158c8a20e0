"""file_roll."""

import errno
import json
import multiprocessing
import os

import pytest

from producer.agent import AgentConfigError, SinkError
from producer.agent.sinks.written import Written
from producer.channels.file.store.notes import FileNotes
from producer.model.errors import ChannelIOError
from producer.testing import ManualClock
from tests.agent.components import bodies, lines, made, made_of_flume
from tests.support.syncs import noted_syncs


def _sink(directory, clock=None, own="", **options):
    state = directory.with_name(f"{directory.name}-state{own}")
    return made("sinks", "file_roll", state, clock or ManualClock(1000.0), directory=directory, **options)


def _visible(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.startswith(".")}


def _hidden(directory):
    return [path.name for path in directory.iterdir() if path.name.startswith(".")]


def test_a_file_is_hidden_while_it_is_written_and_gets_its_name_with_all_its_lines_when_it_ends(tmp_path):
    """A file is hidden while it is written, and gets its name, with all its lines, when it ends."""
    sink = _sink(tmp_path, prefix="p-", extension="log")
    sink.write([lines("a", "b"), bodies("c")])
    assert _visible(tmp_path) == {}
    sink.close()
    assert _visible(tmp_path) == {"p-1000000-1.log": b"a\nb\nc\n"}
    assert _hidden(tmp_path) == []


def test_files_end_by_time(tmp_path):
    """A file ends after roll_interval, even without further events; 0 disables that."""
    clock, other = ManualClock(1000.0), tmp_path / "never"
    sink, never = _sink(tmp_path / "timed", clock, roll_interval=5), _sink(other, clock, roll_interval=0)
    for each in (sink, never):
        each.write([lines("a")])
    clock.advance(5)
    sink.tick()
    never.tick()
    assert _visible(tmp_path / "timed") == {"1000000-1": b"a\n"}
    assert _visible(other) == {}
    sink.write([lines("b")])
    sink.close()
    never.close()
    assert _visible(tmp_path / "timed") == {"1000000-1": b"a\n", "1000000-2": b"b\n"}


def test_files_end_by_size(tmp_path):
    """A file ends when it has reached roll_size."""
    sink = _sink(tmp_path, roll_size=4)
    for text in ("a", "b", "c"):
        sink.write([lines(text)])
    assert _visible(tmp_path) == {"1000000-1": b"a\nb\n"}
    sink.close()


def test_without_events_no_file_is_made(tmp_path):
    """Without events no file is made."""
    clock = ManualClock()
    sink = _sink(tmp_path, clock, roll_interval=1)
    clock.advance(10)
    sink.tick()
    sink.close()
    assert list(tmp_path.iterdir()) == []


def test_texts_without_line_ends(tmp_path):
    """With append_newline = false bodies are written without separators; Flume's option name is accepted."""
    options = {
        "sink.directory": str(tmp_path),
        "sink.serializer": "TEXT",
        "sink.serializer.appendNewline": "false",
        "sink.pathManager": "ROLLTIME",
        "sink.pathManager.extension": "txt",
        "sink.rollInterval": "0",
    }
    sink = made_of_flume("sinks", "file_roll", state=tmp_path.with_name("state"), **options)
    sink.write([lines("a", "b")])
    sink.close()
    ((name, content),) = _visible(tmp_path).items()
    assert content == b"ab"
    assert name.endswith("-1.txt")
    assert len(name) == len("20240101000000-1.txt")


def test_json_lines_have_headers(tmp_path):
    """With json each line has headers and body; a body that is not UTF-8 is kept whole."""
    sink = _sink(tmp_path, serializer="json")
    sink.write([lines("é", h="1").with_bodies([b"\xc3\xa9"]), lines("x").with_bodies([b"\xff"])])
    sink.close()
    (content,) = _visible(tmp_path).values()
    assert [json.loads(line) for line in content.splitlines()] == [
        {"headers": {"h": "1"}, "body": "é"},
        {"headers": {}, "body_base64": "/w=="},
    ]


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    """A failed write is truncated: the batch, delivered again, is in the file once."""
    sink = _sink(tmp_path)
    sink.write([lines("a")])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", _fail)
        with pytest.raises(SinkError, match="No space left"):
            sink.write([lines("b", "c")])
    sink.write([lines("b", "c")])
    sink.close()
    assert _visible(tmp_path) == {"1000000-1": b"a\nb\nc\n"}


def test_if_the_truncation_fails_too_the_sink_writes_nothing_until_it_succeeds(tmp_path, monkeypatch):
    """If the truncation fails, too, the sink writes nothing until it succeeds."""
    sink = _sink(tmp_path)
    sink.write([lines("a")])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", _fail)
        patch.setattr(os, "ftruncate", _fail)
        for _ in range(2):
            with pytest.raises(SinkError):
                sink.write([lines("b")])
    sink.close()
    assert _visible(tmp_path) == {"1000000-1": b"a\n"}


def _fail(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_all_is_on_the_disk_before_a_write_returns(tmp_path, monkeypatch):
    """With fsync each write syncs the file's data; without it no write does."""
    synced = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    sink = _sink(tmp_path)
    sink.write([lines("a")])
    assert len(synced) == 1
    other = _sink(tmp_path / "other", fsync=False)
    other.write([lines("a")])
    assert len(synced) == 1
    sink.close()
    other.close()


def test_a_file_and_its_names_outlive_the_power(tmp_path):
    """The hidden name is synced before its bytes count, and all bytes before the final name."""
    with noted_syncs() as seen:
        sink = _sink(tmp_path)
        sink.write([lines("a")])
        sink.close()
    (name,) = _visible(tmp_path)
    directory = ("directory", tmp_path.stat().st_ino)
    assert seen == [directory, ("file", 2), ("file", 2), ("rename", name), directory]


def _die_writing(directory):
    sink = _sink(directory)
    sink.write([lines("a", "b")])
    (hidden,) = (directory / name for name in _hidden(directory))
    with hidden.open("ab") as file:
        file.write(b"half")
    os._exit(9)


def test_a_killed_processs_hidden_file_is_renamed_at_the_next_start_without_a_partial_line(tmp_path):
    """A killed process's hidden file is renamed at the next start, without a partial line; an empty one is deleted."""
    process = multiprocessing.get_context("fork").Process(target=_die_writing, args=(tmp_path,))
    process.start()
    process.join(60)
    assert process.exitcode == 9
    (tmp_path / ".file_roll~9-9").write_bytes(b"half")
    (tmp_path / ".other~9-9").write_bytes(b"another sink's")
    _sink(tmp_path).close()
    assert _visible(tmp_path) == {"1000000-1": b"a\nb\n"}
    assert _hidden(tmp_path) == [".other~9-9"]


def _numbered(*numbers, origin="o"):
    """Return batches like those of a file channel: one line each, with its number."""
    return [lines(str(number)).numbered(number, origin) for number in numbers]


def _dead(directory):
    """Simulate a killed process: the next sink finds what is on the disk."""
    sink = _sink(directory)
    sink.write(_numbered(1, 2))
    sink._file.close()
    sink._close_notes()


def test_a_batch_written_before_a_crash_and_delivered_again_is_not_written_twice(tmp_path):
    """A batch written before a crash and delivered again is not written twice, even if the channel was reopened."""
    _dead(tmp_path)
    sink = _sink(tmp_path)
    sink.write([*_numbered(1, 2), *_numbered(3, origin="p")])
    sink.close()
    assert sorted(_visible(tmp_path).values()) == [b"1\n2\n", b"3\n"]


def test_bytes_written_before_a_crash_without_a_note_are_truncated_and_delivered_again(tmp_path):
    """Bytes written before a crash without a note are truncated, and delivered again."""
    _dead(tmp_path)
    (hidden,) = _hidden(tmp_path)
    with (tmp_path / hidden).open("ab") as file:
        file.write(b"3\n")
    (tmp_path / ".file_roll~9-9").write_bytes(b"3\n")
    sink = _sink(tmp_path)
    sink.write(_numbered(2, 3))
    sink.close()
    assert sorted(_visible(tmp_path).values()) == [b"1\n2\n", b"3\n"]


def test_the_note_before_the_first_write_lets_even_the_first_lines_be_truncated_after_a_crash(tmp_path, monkeypatch):
    """The note before the first write lets even the first lines be truncated after a crash."""
    sink = _sink(tmp_path)
    note = sink._written.note
    monkeypatch.setattr(sink._written, "note", lambda *noted: None if noted[2] else note(*noted))
    sink.write(_numbered(1))
    sink._file.close()
    sink._close_notes()
    sink = _sink(tmp_path)
    sink.write(_numbered(1, 2))
    sink.close()
    assert list(_visible(tmp_path).values()) == [b"1\n2\n"]


def test_if_a_file_is_shorter_than_noted_batches_delivered_again_are_written_with_a_log_line(tmp_path, caplog):
    """If a file is shorter than noted, batches delivered again are written, with a log line."""
    _dead(tmp_path)
    (hidden,) = _hidden(tmp_path)
    os.truncate(tmp_path / hidden, 2)
    sink = _sink(tmp_path)
    sink.write(_numbered(1, 2))
    sink.close()
    assert sorted(_visible(tmp_path).values()) == [b"1\n", b"1\n2\n"]
    assert "has 2 bytes of 4 written: some events may be repeated" in caplog.text


def test_if_the_note_cannot_be_written_the_write_is_truncated_and_the_batch_is_in_the_file_once(tmp_path, monkeypatch):
    """If the note cannot be written the write is truncated, and the batch is in the file once."""
    sink = _sink(tmp_path)
    sink.write(_numbered(1))
    with monkeypatch.context() as patch:
        patch.setattr(sink._written._notes, "write", _not_noted)
        with pytest.raises(SinkError, match="no disk"):
            sink.write(_numbered(2))
    sink.write(_numbered(2))
    sink.close()
    assert _visible(tmp_path) == {"1000000-1": b"1\n2\n"}


def _not_noted(*_):
    raise ChannelIOError("k", "no disk")


def test_a_file_of_a_living_process_is_left_alone(tmp_path):
    """Two sinks with one name and directory leave each other's files alone, and overwrite none."""
    first = _sink(tmp_path)
    first.write([lines("a")])
    second = _sink(tmp_path, own="2")
    second.write([lines("b")])
    first.close()
    second.close()
    assert sorted(_visible(tmp_path).values()) == [b"a\n", b"b\n"]


def test_a_file_that_came_meanwhile_is_not_written_over(tmp_path):
    """A file of the final name, made by another program, is not overwritten."""
    sink = _sink(tmp_path)
    sink.write([lines("a")])
    (tmp_path / "1000000-1").write_bytes(b"another's")
    sink.close()
    assert _visible(tmp_path) == {"1000000-1": b"another's", "1000000-1.1": b"a\n"}


def test_of_many_names_the_newest_are_remembered(tmp_path):
    """Only the newest origins are remembered, since only their batches are delivered again."""
    written = Written(tmp_path, "k")
    for number in range(20):
        written.note("f", number, [lines("a").numbered(5, f"origin-{number}")])
    assert [written.has(lines("a").numbered(5, f"origin-{number}")) for number in (0, 4, 19)] == [False, True, True]
    written.close()


def test_a_start_that_fails_on_invalid_notes_releases_them(tmp_path):
    """A start that fails on invalid notes releases them: the next start gets the same error, not a lock."""
    notes = FileNotes(str(tmp_path), "k")
    notes.write("written", b"no JSON", -1)
    notes.close()
    errors = []
    for _ in range(2):
        with pytest.raises(ValueError, match="Expecting value") as caught:
            Written(tmp_path, "k")
        errors.append(caught)


@pytest.mark.parametrize("path_manager", ["default", "rolltime"])
def test_a_wall_clock_that_is_set_back_writes_over_nothing(tmp_path, path_manager):
    """After a clock that is set back no name is used twice, not even by the next start."""
    clock = ManualClock(1_700_000_000.0)
    for _ in range(2):
        sink = _sink(tmp_path, clock, roll_interval=5, path_manager=path_manager)
        sink.write([lines("a")])
        clock.advance(4)
        clock.set_wall(1_700_000_000.0)
        sink.write([lines("b")])
        clock.advance(1)
        sink.write([lines("c")])
        sink.close()
        clock.set_wall(1_700_000_000.0)
    assert sorted(_visible(tmp_path).values()) == [b"a\nb\n", b"a\nb\n", b"c\n", b"c\n"]


def test_names_that_exist_are_not_used(tmp_path):
    """An existing file is never overwritten."""
    (tmp_path / "1000000-1").write_bytes(b"old")
    sink = _sink(tmp_path)
    sink.write([lines("a")])
    sink.close()
    assert _visible(tmp_path) == {"1000000-1": b"old", "1000000-2": b"a\n"}


def test_a_wrong_serializer_is_refused():
    """An unknown serializer is refused with the valid ones."""
    with pytest.raises(AgentConfigError, match="must be one of text, json"):
        made_of_flume("sinks", "file_roll", **{"sink.directory": "d", "sink.serializer": "avro_event"})
