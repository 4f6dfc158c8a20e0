"""Segments: written at the end, read anywhere; Flume's TestLogFile."""

import errno
import struct
import threading
from pathlib import Path
from typing import cast

import pytest

from producer.channels import Event, FileChannel
from producer.channels.file.store.disk import Disk
from producer.channels.file.store.encryption import SegmentCipher
from producer.channels.file.store.format import (
    Kind,
    SegmentHeader,
    decode_event,
    decode_segment_header,
    encode_event,
    encode_gap,
    encode_record,
    encode_segment_header,
)
from producer.channels.file.store.segment import (
    TRANSITIONS,
    Record,
    Segment,
    SegmentState,
    SegmentWriter,
    payload_of,
    scan,
)
from tests.channels.file.opening import DIRECTORY, file_stats, fill, flip, opened_channel, put_record, records
from tests.channels.helpers import bodies, drained, opened, put
from tests.support.sim_fs import SimFS
from tests.support.waiting import Call

HEADER = SegmentHeader(3, 10, bytes(range(16)), 1.5)


def a_segment(path: str = "/s/log-3", *, cipher: SegmentCipher | None = None) -> Segment:
    return Segment(path, HEADER, cipher)


def a_writer(disk: SimFS) -> SegmentWriter:
    disk.make_directory("/s")
    writer = SegmentWriter(cast("Disk", disk), a_segment())
    writer.append(encode_segment_header(writer.segment.header))
    writer.activate()
    return writer


def a_put(sequence: int, body: bytes = b"body") -> bytes:
    return encode_record(HEADER.seed, Kind.PUT, 0, sequence, 7, encode_event(Event({}, body)))


def test_a_file_that_exists_is_never_overwritten() -> None:
    """A writer refuses an existing file."""
    disk = SimFS()
    disk.make_directory("/s")
    disk.put("/s/log-3", b"precious")
    with pytest.raises(FileExistsError):
        SegmentWriter(cast("Disk", disk), a_segment())
    assert disk.content("/s/log-3") == b"precious"


def test_a_writer_refuses_the_name_of_a_directory(tmp_path: Path) -> None:
    """A writer refuses the name of a directory."""
    (tmp_path / "log-3").mkdir()
    with pytest.raises(OSError, match="File exists"):
        SegmentWriter(Disk(), a_segment(str(tmp_path / "log-3")))


def test_a_segment_appears_with_all_that_it_begins_with_or_not_at_all() -> None:
    """A segment appears with its first records, or not at all."""
    for operation in (None, "sync", "rename", "sync_directory"):
        for seed in range(20):
            disk = SimFS()
            disk.make_directory("/s")
            writer = SegmentWriter(cast("Disk", disk), a_segment())
            whole = encode_segment_header(writer.segment.header) + a_put(10)
            writer.append(whole)
            assert (writer.state, disk.names("/s")) == (SegmentState.BEGUN, ["log-3.new"])
            if operation is None:
                writer.activate()
                assert (writer.state, writer.synced, disk.names("/s")) == (SegmentState.ACTIVE, len(whole), ["log-3"])
            else:
                disk.fail(operation)
                with pytest.raises(OSError, match="Input/output"):
                    writer.activate()
                assert (writer.state, writer.synced) == (SegmentState.BEGUN, 0)
            after = disk.crash(seed)
            assert operation or "log-3" in after.names("/s")
            if "log-3" in after.names("/s"):
                assert after.content("/s/log-3") == whole


def test_a_leftover_temporary_segment_is_replaced() -> None:
    """A leftover temporary segment is replaced."""
    disk = SimFS()
    disk.make_directory("/s")
    disk.put("/s/log-3.new", b"half a hea")
    a_writer(disk)
    assert disk.content("/s/log-3") == encode_segment_header(HEADER)
    assert disk.names("/s") == ["log-3"]


@pytest.mark.parametrize("state", SegmentState)
def test_a_segment_goes_only_where_the_table_allows_and_gives_its_file_back_at_the_end(state: SegmentState) -> None:
    """Only transitions of the table are allowed, and final states close the file."""
    for to in SegmentState:
        disk = SimFS()
        writer = a_writer(disk)
        writer.state = state
        if to in TRANSITIONS[state]:
            writer.move(to)
            assert writer.state is to
            assert (disk.open_files == []) == (to in (SegmentState.DONE, SegmentState.ABANDONED))
        else:
            with pytest.raises(RuntimeError, match=f"log-3 is {state.value} and cannot become {to.value}"):
                writer.move(to)
    assert (TRANSITIONS[SegmentState.DONE], TRANSITIONS[SegmentState.ABANDONED]) == (frozenset(), frozenset())


def test_short_writes_are_continued_while_the_segment_has_no_name() -> None:
    """Partial writes to a temporary segment are continued."""
    disk = SimFS()
    disk.make_directory("/s")
    writer = SegmentWriter(cast("Disk", disk), a_segment())
    writer.append(encode_segment_header(writer.segment.header))
    for written in (1, 3, 20):
        disk.fail("append", number=None, written=written)
    assert writer.append(a_put(10, b"x" * 200))
    writer.activate()
    assert [type(item) for item in scan(disk.content("/s/log-3"), HEADER)] == [Record]


@pytest.mark.parametrize("written", [0, 1, 30])
def test_half_a_write_is_cut_off_again(written: int) -> None:
    """A partial write is cut off again."""
    disk = SimFS()
    writer = a_writer(disk)
    writer.append(a_put(10))
    size = writer.size
    disk.fail("append", number=errno.ENOSPC, written=written)
    with pytest.raises(OSError, match="No space"):
        writer.append(a_put(11))
    assert (writer.size, len(disk.content("/s/log-3"))) == (size, size)
    assert (writer.spoiled, writer.broken) == (written > 0, False)
    assert writer.append(a_put(12)) == (written == 0)
    found = [item.sequence for item in scan(disk.content("/s/log-3"), HEADER) if isinstance(item, Record)]
    assert found == ([10] if written else [10, 12])


def test_a_disk_that_takes_only_parts_is_written_to_a_segment_at_a_time() -> None:
    """On a disk with only partial writes every commit gets a new segment."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        for number in range(5):
            disk.fail("append", number=None, times=3, written=90)
            put(channel, str(number) * 200)
        disk.heal()
        put(channel, "last")
    with opened_channel(disk) as again:
        assert drained(again) == [*(str(number) * 200 for number in range(5)), "last"]
        assert file_stats(again).damaged_records == file_stats(again).torn_tails == 0


def test_half_a_write_that_cannot_be_cut_off_breaks_the_writer() -> None:
    """A partial write that cannot be cut off ends the segment, without loss."""
    disk = SimFS()
    writer = a_writer(disk)
    disk.fail("append", written=10)
    disk.fail("truncate")
    with pytest.raises(OSError, match="Input/output"):
        writer.append(a_put(10))
    assert writer.broken

    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, "a")
        disk.fail("append", written=10)
        disk.fail("truncate")
        with pytest.raises(OSError, match="a commit failed"):
            put(channel, "never")
        put(channel, "b")
        assert file_stats(channel).segments == 2
    with opened_channel(disk) as again:
        assert drained(again) == ["a", "b"]


def test_threads_read_a_thousand_events_in_any_order() -> None:
    """Threads read a thousand events in any order."""
    disk = SimFS()
    with opened_channel(disk, segment_size=20_000) as channel:
        expected = dict(enumerate(fill(channel, 1000, each=50), 1))
        entries = channel._ledger.queue.take(1000, None, {})

        def read(start: int) -> None:
            for step in range(1000):
                entry = entries[(start + step * 389) % 1000]
                (payload,) = channel._segments.read([entry])
                assert payload is not None
                assert decode_event(payload, 1).body.decode() == expected[entry.sequence]

        for call in [Call(lambda start=start: read(start)) for start in range(0, 1000, 250)]:
            call.result()
        channel._ledger.queue.put_back(entries)
        assert file_stats(channel).segments > 5


def test_few_files_are_open_however_many_segments_there_are() -> None:
    """The number of open files is bounded."""
    disk = SimFS()
    with opened_channel(disk, segment_size=1280) as channel:
        expected = fill(channel, 120, size=500)
        assert file_stats(channel).segments >= 100
        assert drained(channel) == expected
        assert len(disk.open_files) <= 32 + 3


@pytest.mark.usefixtures("read_back")
def test_a_large_event_with_a_flipped_bit_is_not_delivered() -> None:
    """A large event with a flipped bit is not delivered."""
    disk = SimFS()
    with opened_channel(disk, segment_size=10_000) as channel:
        body = "x" * 2500
        put(channel, body, "next")
        path, record = put_record(disk, body)
        flip(disk, path, record.offset + 1500)
        assert drained(channel) == ["next"]
        assert file_stats(channel).lost_events == 1


def test_a_payload_is_returned_only_for_the_exact_record() -> None:
    """A payload is returned only for the exact record."""
    frame = a_put(10)
    segment = a_segment()
    assert payload_of(segment, frame, Kind.PUT, 10) == encode_event(Event({}, b"body"))
    assert payload_of(segment, frame, Kind.TAKE, 10) is None
    assert payload_of(segment, frame, Kind.PUT, 9) is None
    assert payload_of(segment, frame, Kind.PUT, 11) is None
    assert payload_of(segment, frame[:-1], Kind.PUT, 10) is None
    assert payload_of(segment, b"", Kind.PUT, 10) is None
    for offset in range(len(frame)):
        damaged = bytearray(frame)
        damaged[offset] ^= 1
        assert payload_of(segment, bytes(damaged), Kind.PUT, 10) is None


def test_a_gap_is_a_record_that_holds_nothing() -> None:
    """A gap is skipped, and its neighbours are read."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, "a")
        put(channel, "damaged")
        put(channel, "c")
    path, record = put_record(disk, "damaged")
    content = bytearray(disk.content(path))
    header = decode_segment_header(bytes(content))
    assert header is not None
    gap = encode_gap(header.seed, record.sequence - 1, record.transaction, record.end - record.offset)
    content[record.offset : record.end] = gap
    disk.put(path, bytes(content))
    for name in ("checkpoint", "checkpoint.backup"):
        disk.unlink(f"{DIRECTORY}/{name}")
    with opened_channel(disk) as again:
        assert drained(again) == ["a", "c"]
        assert (file_stats(again).damaged_records, file_stats(again).torn_tails) == (0, 0)


def test_a_take_names_the_events_that_it_took() -> None:
    """A Take lists the sequence numbers of its events in one record."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, *range(5))
        with channel.transaction() as transaction:
            assert bodies(transaction.take(3)) == ["0", "1", "2"]
        (take,) = [record for record in records(disk, f"{DIRECTORY}/log-0000000001") if record.kind == Kind.TAKE]
        assert struct.unpack("<3Q", take.payload) == (1, 2, 3)


def test_readers_and_deletions_do_not_disturb_each_other() -> None:
    """Reads continue while checkpoints delete segments."""
    disk = SimFS()
    with opened_channel(disk, segment_size=1280) as channel:
        expected = fill(channel, 300, size=150)
        stop = threading.Event()

        def keep() -> None:
            while not stop.is_set():
                channel.checkpoint()

        keeper, got = Call(keep), []
        while len(got) < 300:
            taking = opened(channel)
            got += bodies(taking.take(7))
            taking.commit()
        stop.set()
        keeper.result()
        assert got == expected
        assert file_stats(channel).lost_events == 0


def test_a_segment_of_the_real_file_system_is_private(tmp_path: Path) -> None:
    """Segment files are readable by their owner only."""
    with FileChannel(tmp_path / "c", minimum_free_space=0, checkpoint_interval=None) as channel:
        put(channel, "secret")
        channel.checkpoint()
        for path in (tmp_path / "c").iterdir():
            assert path.stat().st_mode & 0o077 == 0, path
    assert (tmp_path / "c").stat().st_mode & 0o077 == 0
