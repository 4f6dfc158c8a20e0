"""A sector that the disk cannot read costs what stands in it, as long as it is bad, and nothing else."""

import errno
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from producer.channels.file.channel import FileChannel
from producer.channels.file.store.pointers import Entry
from producer.model.errors import ChannelIOError
from tests.channels.file.opening import file_stats, fill, open_channel, opened_channel, segments
from tests.channels.helpers import bodies, drained, opened, put, take
from tests.support.bad_sectors import BadSectors
from tests.support.sim_fs import SimFS

pytestmark = pytest.mark.usefixtures("read_back")


def take_what_comes(channel: FileChannel, takes: int) -> list[str]:
    """So many takes of a thousand, each committed; the errors among them are passed over."""
    got: list[str] = []
    for _ in range(takes):
        with suppress(ChannelIOError):
            got += take(channel, 1000)
    return got


def test_one_bad_sector_costs_one_event_and_only_for_as_long_as_it_is_bad(caplog: pytest.LogCaptureFixture) -> None:
    """999 of a thousand are delivered, in order, while event 900 cannot be read; it follows when it can be."""
    disk = BadSectors()
    with opened_channel(disk, segment_size=1 << 20) as channel:
        expected = fill(channel, 1000, each=100)
        disk.break_record(expected[899])
        caplog.set_level(logging.ERROR)
        assert take(channel, 1000) == expected[:899]
        assert take_what_comes(channel, 3) == expected[900:]
        assert (channel.stats().size, channel.stats().taken) == (0, 1)
        assert "1 event cannot be read and is set aside" in caplog.text
        for number in range(3):  # the sector stays bad: nobody waits for it
            assert channel.checkpoint(force=True)
            put(channel, number)
            assert take(channel, 1000) == [str(number)]
        disk.bad.clear()
        channel.checkpoint(force=True)
        assert take(channel, 1000) == [expected[899]]
        assert file_stats(channel).lost_events == 0


def test_what_stands_before_a_bad_sector_does_not_wait_for_it() -> None:
    """The first take gives what can be read, without an error; the event that cannot be is the first then."""
    disk = BadSectors()
    with opened_channel(disk) as channel:
        put(channel, *"abcd")
        disk.break_record("c")
        taking = opened(channel)
        assert bodies(taking.take(4)) == ["a", "b"]
        for failures in (1, 2):
            with pytest.raises(ChannelIOError, match=f"{failures} of 3 tries before it is set aside"):
                taking.take(4)
        assert bodies(taking.take(4)) == ["d"]
        taking.rollback()
        disk.bad.clear()
        assert drained(channel) == ["a", "b", "d"]
        channel.checkpoint(force=True)
        assert drained(channel) == ["c"]


def test_an_error_that_passes_at_once_costs_nothing() -> None:
    """Reading failed once for many events, and not when they were read one by one: all of them come."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, *"abcd")
        fault = disk.fail("read")
        assert take(channel, 4) == list("abcd")
        assert fault.met == 1
        assert channel.stats().take_errors == 0


def test_a_segment_that_cannot_be_read_at_all_holds_up_no_other() -> None:
    """However many events stand in it: after three errors each of them is tried once, and the rest comes."""
    disk = BadSectors()
    with opened_channel(disk) as channel:
        expected = fill(channel, 100)
        path = segments(disk)[1]
        disk.bad[path] = 0, 1 << 30
        got = take_what_comes(channel, 5)
        assert len(got) > 60
        assert got == [body for body in expected if body in got]
        assert channel.stats().taken == 100 - len(got)
        disk.bad.clear()
        channel.checkpoint(force=True)
        assert sorted(got + drained(channel)) == expected


def test_looking_passes_over_the_one_event_that_cannot_be_read() -> None:
    """``peek`` gives all others."""
    disk = BadSectors()
    channel = open_channel(disk, segment_size=1 << 20)
    put(channel, *range(500))
    disk.break_record("250")
    assert bodies(list(channel.peek())) == [str(number) for number in range(500) if number != 250]
    channel.close()


def test_a_note_of_passed_events_that_cannot_be_written_keeps_nothing_from_its_taker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Events behind one that cannot be read are delivered though the notes fail, which the log says."""
    with FileChannel(tmp_path / "c", minimum_free_space=0) as channel:
        put(channel, *"abc")
        assert channel.notes is not None
        read, segments_ = channel._segments.read, channel._segments

        def bad(entries: Sequence[Entry]) -> list[bytes]:
            if any(entry.sequence == 1 for entry in entries):
                raise OSError(errno.EIO, "Input/output error")
            return read(entries)

        def full(*_: object) -> None:
            raise ChannelIOError(channel.name, "the disk is full")

        with monkeypatch.context() as broken:
            broken.setattr(segments_, "read", bad)
            broken.setattr(channel.notes, "write", full)
            assert take_what_comes(channel, 3) == ["b", "c"]
        assert channel._passed_through == 1
        assert "the note of events out of order cannot be written" in caplog.text
        channel.checkpoint(force=True)
        assert take(channel, 10) == ["a"]
        assert channel.notes.read("passed through") is None
