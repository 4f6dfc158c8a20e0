"""Bad sectors: an unreadable sector withholds only its own events, only as long as it is bad."""

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
    """Take up to a thousand events at a time, committing each take and ignoring errors; return the bodies."""
    got: list[str] = []
    for _ in range(takes):
        with suppress(ChannelIOError):
            got += take(channel, 1000)
    return got


def test_one_bad_sector_costs_one_event_and_only_for_as_long_as_it_is_bad(caplog: pytest.LogCaptureFixture) -> None:
    """One unreadable event does not delay the other 999, and is delivered once readable."""
    disk = BadSectors()
    with opened_channel(disk, segment_size=1 << 20) as channel:
        expected = fill(channel, 1000, each=100)
        disk.break_record(expected[899])
        caplog.set_level(logging.ERROR)
        assert take(channel, 1000) == expected[:899]
        assert take_what_comes(channel, 3) == expected[900:]
        assert (channel.stats().size, channel.stats().taken) == (0, 1)
        assert "1 event cannot be read and is set aside" in caplog.text
        for number in range(3):  # the sector stays bad: takes go on
            assert channel.checkpoint(force=True)
            put(channel, number)
            assert take(channel, 1000) == [str(number)]
        disk.bad.clear()
        channel.checkpoint(force=True)
        assert take(channel, 1000) == [expected[899]]
        assert file_stats(channel).lost_events == 0


def test_events_before_an_unreadable_one_are_delivered_without_an_error() -> None:
    """Events before an unreadable one are delivered without an error."""
    disk = BadSectors()
    with opened_channel(disk) as channel:
        put(channel, *"abcd")
        disk.break_record("c")
        taking = opened(channel)
        assert bodies(taking.take(4)) == ["a", "b"]
        for failures in (1, 2):
            with pytest.raises(ChannelIOError, match=f"try {failures} of 3 before it is set aside"):
                taking.take(4)
        assert bodies(taking.take(4)) == ["d"]
        taking.rollback()
        disk.bad.clear()
        assert drained(channel) == ["a", "b", "d"]
        channel.checkpoint(force=True)
        assert drained(channel) == ["c"]


def test_an_error_that_passes_at_once_costs_nothing() -> None:
    """A read that fails once for many events and then succeeds for each loses none."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, *"abcd")
        fault = disk.fail("read")
        assert take(channel, 4) == list("abcd")
        assert fault.met == 1
        assert channel.stats().take_errors == 0


def test_a_segment_that_cannot_be_read_at_all_holds_up_no_other() -> None:
    """An unreadable segment delays the others by three errors only."""
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
    """``peek`` yields all events but the unreadable one."""
    disk = BadSectors()
    channel = open_channel(disk, segment_size=1 << 20)
    put(channel, *range(500))
    disk.break_record("250")
    assert bodies(list(channel.peek())) == [str(number) for number in range(500) if number != 250]
    channel.close()


def test_a_note_of_passed_events_that_cannot_be_written_keeps_nothing_from_its_taker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Events after an unreadable one are delivered even if the notes fail, which is logged."""
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
