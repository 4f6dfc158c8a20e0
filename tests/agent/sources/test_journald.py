"""The source ``journald``, with a program in place of ``journalctl``."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from producer.agent.flow.channel import BatchChannel
from producer.agent.sources import journald
from producer.agent.sources.journald import JournalError
from tests.agent import programs
from tests.agent.doubles import file_channel, memory_channel, opened, taken
from tests.agent.sources.putting import reading
from tests.support.waiting import eventually


class Journal:
    """A journal, and the program that reads it."""

    def __init__(self, folder: Path) -> None:
        self._file, self.program = folder / "journal", folder / "journalctl"
        self._called = folder / "called"
        shutil.copy(Path(programs.__file__).with_name("journalctl.py"), self.program)
        self.program.chmod(0o755)
        self._file.touch()
        self._count = 0

    def say(self, *messages: Any, **fields: Any) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            for message in messages:
                self._count += 1
                entry = {"__CURSOR": f"s=1;i={self._count}", "__REALTIME_TIMESTAMP": "1700000000123456", **fields}
                file.write(json.dumps({**entry, "MESSAGE": message}) + "\n")

    def end(self) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write("end\n")

    @property
    def called(self) -> list[str]:
        return self._called.read_text().splitlines() if self._called.exists() else []


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def _holds(channel: BatchChannel, count: int) -> None:
    eventually(lambda: channel.held >= count, f"{count} events")


def test_a_second_run_continues_at_the_channels_position_no_entry_is_lost_or_repeated(
    tmp_path: Path, journal: Journal
) -> None:
    """A second run continues at the channels' position: no entry is lost or repeated."""
    options = {"command": str(journal.program), "units": ["ssh"], "matches": ["PRIORITY=3"]}
    with opened(file_channel(tmp_path)) as channel:
        journal.say("one", "two", PRIORITY="3", _PID="7", OTHER="x")
        with reading("journald", tmp_path, {"c": channel}, **options):
            _holds(channel, 2)
        taking = channel.take(10, 1 << 20, 0)
        assert taking is not None
        headers = {"PRIORITY": "3", "_PID": "7", "timestamp": "1700000000123"}
        assert next(taking.batches[0].events()) == (headers, b"one")
        taking.rollback()
    journal.say("three")
    with opened(file_channel(tmp_path)) as channel:
        with reading("journald", tmp_path, {"c": channel}, **options):
            _holds(channel, 3)
        assert taken(channel) == [b"one", b"two", b"three"]
    first, second = journal.called
    assert "--unit=ssh" in first
    assert first.endswith("--follow --no-tail PRIORITY=3")
    assert second.endswith("--follow --no-tail --cursor s=1;i=2 PRIORITY=3")


def test_with_start_end_existing_entries_are_skipped_and_entries_written_between_runs_are_read(
    tmp_path: Path, journal: Journal
) -> None:
    """With start = end existing entries are skipped, and entries written between runs are read."""
    options = {"command": str(journal.program), "start": "end"}
    journal.say("old", "older")
    with opened(file_channel(tmp_path)) as channel:
        with reading("journald", tmp_path, {"c": channel}, **options):
            eventually(lambda: len(journal.called) == 2, "the second call")
        journal.say("new")
        with reading("journald", tmp_path, {"c": channel}, **options):
            _holds(channel, 1)
        assert taken(channel) == [b"new"]


def test_a_channel_that_is_behind_gets_its_missing_entries_and_the_other_channel_gets_none_twice(
    tmp_path: Path, journal: Journal
) -> None:
    """A channel that is behind gets its missing entries, and the other channel gets none twice."""
    options = {"command": str(journal.program)}
    with opened(file_channel(tmp_path, "a")) as a, opened(file_channel(tmp_path, "b", capacity=1)) as b:
        with reading("journald", tmp_path, {"a": a, "b": b}, **options):
            journal.say("1")
            _holds(b, 1)
            journal.say("2")
            _holds(a, 2)  # b is full
        assert taken(b) == [b"1"]
        b.capacity = None
        journal.say("3")
        with reading("journald", tmp_path, {"a": a, "b": b}, **options):
            for channel, count in ((a, 3), (b, 2)):
                _holds(channel, count)
        assert [taken(each) for each in (a, b)] == [[b"1", b"2", b"3"], [b"2", b"3"]]


def test_if_its_notes_are_deleted_the_source_logs_that_and_reads_the_journal_again_without_a_loss(
    tmp_path: Path, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    """If its notes are deleted the source logs that, and reads the journal again without a loss."""
    options = {"command": str(journal.program)}
    with opened(file_channel(tmp_path)) as channel:
        journal.say("1")
        with reading("journald", tmp_path, {"c": channel}, **options):
            _holds(channel, 1)
        shutil.rmtree(tmp_path / "source")
        with reading("journald", tmp_path, {"c": channel}, **options):
            _holds(channel, 2)
        assert taken(channel) == [b"1", b"1"]
    assert "some entries come twice" in caplog.text


def test_binary_and_repeated_fields_are_read_an_invalid_entry_is_counted_and_logged(
    tmp_path: Path, journal: Journal
) -> None:
    """Binary and repeated fields are read; an invalid entry is counted and logged."""
    journal.say([255, 0, 65], ["a", "b"], None, TAG=["x", "y"])
    with opened(file_channel(tmp_path)) as channel:
        with reading("journald", tmp_path, {"c": channel}, command=str(journal.program), fields=["all"]):
            _holds(channel, 3)
        taking = channel.take(10, 1 << 20, 0)
        assert taking is not None
        tags = {"TAG": "x\ny", "timestamp": "1700000000123"}
        assert [event for batch in taking.batches for event in batch.events()] == [
            (tags, b"\xff\x00A"),
            (tags, b"a\nb"),
            (tags, b""),
        ]
        taking.commit()


def test_if_journalctl_ends_the_error_has_its_exit_status_and_the_source_is_restarted(
    tmp_path: Path, journal: Journal
) -> None:
    """If ``journalctl`` ends, the error has its exit status, and the source is restarted."""
    journal.say("one")
    journal.end()
    with opened(file_channel(tmp_path)) as channel:
        with (
            reading("journald", tmp_path, {"c": channel}, command=str(journal.program)) as call,
            pytest.raises(JournalError, match="ended with the exit status 1"),
        ):
            call.result()
        assert taken(channel) == [b"one"]


def test_entries_that_a_memory_channel_lost_in_a_crash_are_read_again(tmp_path: Path, journal: Journal) -> None:
    """Entries that a memory channel lost in a crash are read again; delivered and noted ones are not."""
    options = {"command": str(journal.program), "start": "end"}
    journal.say("old")
    for life, (said, found) in enumerate(((["1", "2"], ["1", "2"]), (["3"], ["1", "2", "3"]), (["4"], ["3", "4"]))):
        state = tmp_path / f"state-{life}"
        with opened(memory_channel(state)) as channel:
            with reading("journald", state, {"c": channel}, **options):
                if life == 0:
                    eventually(lambda: len(journal.called) == 2, "the second call")
                _holds(channel, len(found) - len(said))
                for message in said:
                    before = channel.held
                    journal.say(message)
                    _holds(channel, before + 1)
            if life == 1:
                taking = channel.take(2, 1 << 20, 0)
                assert taking is not None
                assert [body for batch in taking.batches for body in batch.bodies()] == [b"1", b"2"]
                taking.commit()
                channel.flush()
            shutil.copytree(state, tmp_path / f"state-{life + 1}")
            if life != 1:
                assert taken(channel) == [each.encode() for each in found]
            channel.discard()


def test_notes_of_a_full_memory_stay_small(tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes of very many undelivered batches are thinned out, and nothing is lost."""
    monkeypatch.setattr(journald, "_MOST_NOTED", 4)
    options, state = {"command": str(journal.program)}, tmp_path / "state"
    with opened(memory_channel(state)) as channel:
        with reading("journald", state, {"c": channel}, **options):
            for number in range(20):
                journal.say(f"{number}")
                _holds(channel, number + 1)
        for _ in range(15):
            taking = channel.take(1, 1 << 20, 0)
            assert taking is not None
            taking.commit()
        channel.flush()
        shutil.copytree(state, tmp_path / "killed")
        channel.discard()
    with closing(sqlite3.connect(tmp_path / "killed/source/notes.db")) as notes:
        ((noted,),) = notes.execute("SELECT value FROM notes WHERE name = 'cursors'")
    assert len(json.loads(noted)) < 8
    place, found = tmp_path / "killed", list[bytes]()
    with opened(memory_channel(place)) as channel, reading("journald", place, {"c": channel}, **options) as call:
        journal.say("20")
        eventually(lambda: found.extend(taken(channel)) or b"20" in found or call.done, "the last entry")
        assert call.error is None, repr(call.error)
    assert {*range(15, 21)} <= {*map(int, found)}
