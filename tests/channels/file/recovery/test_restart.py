"""Restarts: all committed events are recovered, whatever happened to the checkpoints; Flume's TestFileChannelRestart.

All tests use a simulated disk, whose files are damaged while no channel is open. The file is long because the list of
damages is.
"""

import logging
import re
import struct
import threading
from collections.abc import Callable
from zlib import crc32

import pytest

from producer.channels.file.recovery.checkpoint import encode, load
from producer.channels.file.store.format import FIRST_RECORD, Kind
from producer.model.errors import ChannelIOError
from producer.text.plural import counted
from tests.channels.file.opening import (
    CHECKPOINTS,
    DIRECTORY,
    contents,
    cut,
    end_of,
    file_stats,
    fill,
    flip,
    killed,
    log,
    names,
    open_channel,
    opened_channel,
    put_record,
    records,
    segments,
)
from tests.channels.helpers import bodies, drained, opened, put, take
from tests.support.sim_fs import SimFS
from tests.support.waiting import Call, eventually

Damage = Callable[[SimFS, str], None]


def history(disk: SimFS, *, dual: bool = True) -> tuple[SimFS, list[str]]:
    """Play rolls, takes, a checkpoint and a kill; return the disk and the committed events."""
    channel = open_channel(disk, dual_checkpoints=dual)
    first = fill(channel, 120)
    taken = take(channel, 30)
    before = len(segments(disk))
    assert channel.checkpoint()
    assert 3 < len(segments(disk)) < before
    second = fill(channel, 40, each=4)
    taken += take(channel, 20)
    assert (first + second)[:50] == taken
    return killed(channel, disk), (first + second)[50:]


def resealed(content: bytearray) -> bytes:
    return bytes(content[:-4]) + struct.pack("<I", crc32(content[:-4]))


def version_2(disk: SimFS, path: str) -> None:
    content = bytearray(disk.content(path))
    content[8] = 2
    disk.put(path, resealed(content))


def fewer_events_than_told(disk: SimFS, path: str) -> None:
    content = bytearray(disk.content(path))
    del content[-40:-4]
    disk.put(path, resealed(content))


def of_another_channel(disk: SimFS, path: str) -> None:
    other = SimFS()
    history(other)
    disk.put(path, other.content(CHECKPOINTS[0]))


def beyond_the_log(disk: SimFS, path: str) -> None:
    content = bytearray(disk.content(path))
    content[32:40] = struct.pack("<Q", 1 << 20)
    disk.put(path, resealed(content))


DAMAGES: dict[str, Damage] = {
    "missing": lambda disk, path: disk.unlink(path),
    "empty": lambda disk, path: disk.put(path, b""),
    "a byte too long": lambda disk, path: disk.put(path, disk.content(path) + b"\0"),
    "zeros": lambda disk, path: disk.put(path, bytes(len(disk.content(path)))),
    "an event": lambda disk, path: flip(disk, path, len(disk.content(path)) // 2),
    "of version 2": version_2,
    "fewer events than told": fewer_events_than_told,
    "of another channel": of_another_channel,
    "beyond the log": beyond_the_log,
}


@pytest.mark.parametrize("copies", ["first of two", "second of two", "both", "the only one"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_costs_nothing_but_time(
    damage: str, copies: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged checkpoint is reported, and the channel opens from the other copy or the log."""
    dual = copies != "the only one"
    disk, owed = history(SimFS(), dual=dual)
    whole_log = len(log(disk))
    damaged = {"first of two": CHECKPOINTS[:1], "second of two": CHECKPOINTS[1:], "both": CHECKPOINTS}
    for path in damaged.get(copies, CHECKPOINTS[:1]):
        DAMAGES[damage](disk, path)
    caplog.set_level(logging.WARNING)
    with opened_channel(disk, dual_checkpoints=dual) as channel:
        found = file_stats(channel)
        bad = 0 if damage == "missing" else len(damaged.get(copies, CHECKPOINTS[:1]))
        assert found.checkpoint_fallbacks == bad
        assert len(re.findall("cannot be used", caplog.text)) == bad
        from_checkpoint = copies in ("first of two", "second of two")
        assert found.replayed == (54 if from_checkpoint else whole_log)
        assert (found.recovered, found.lost_events, found.damaged_records) == (len(owed), 0, 0)
        assert drained(channel) == owed
    for path in CHECKPOINTS[: 1 + dual]:
        assert load(disk, DIRECTORY, path.rpartition("/")[2]) is not None  # type: ignore[arg-type]


@pytest.mark.parametrize("checkpoint", ["kept", "deleted", "older"])
def test_the_log_alone_and_the_checkpoint_lead_to_the_same(checkpoint: str) -> None:
    """Any checkpoint, or none, leads to the same events and numbers."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, *"abcdef")
    early = disk.content(CHECKPOINTS[0])
    taking = opened(channel)
    taking.take(2)
    channel.checkpoint(force=True)
    taking.commit()
    last = put(channel, "g", "h")
    disk = killed(channel, disk)
    for path in CHECKPOINTS:
        if checkpoint == "deleted":
            disk.unlink(path)
        elif checkpoint == "older":
            disk.put(path, early)
    with opened_channel(disk) as again:
        with again.transaction() as transaction:
            events = transaction.take(10)
        assert bodies(events) == list("cdefgh")
        assert [event.sequence for event in events] == list(range(3, 9))
        assert put(again, "i") == last + 1 == 9


def test_the_newer_of_two_good_copies_counts() -> None:
    """The newer of two valid copies is used."""
    for stale in CHECKPOINTS:
        disk = SimFS()
        channel = open_channel(disk)
        early = disk.content(CHECKPOINTS[0])
        expected = fill(channel, 50)
        channel.checkpoint()
        take(channel)
        disk = killed(channel, disk)
        disk.put(stale, early)
        with opened_channel(disk) as again:
            assert file_stats(again).checkpoint_fallbacks == 0
            assert file_stats(again).replayed == 2
            assert drained(again) == expected[1:]


def test_recovery_reads_exactly_the_records_after_the_second_copys_position() -> None:
    """Recovery reads exactly the records after the second copy's position."""
    disk = SimFS()
    channel = open_channel(disk)
    fill(channel, 100, each=10)
    channel.checkpoint()
    after = fill(channel, 100, each=10)
    for _ in range(10):
        take(channel, 10)
    disk = killed(channel, disk)
    flip(disk, CHECKPOINTS[0], 20)
    with opened_channel(disk) as again:
        assert file_stats(again).checkpoint_fallbacks == 1
        assert file_stats(again).replayed == 100 + 10 + 10 + 10
        assert drained(again) == after


def test_segments_that_the_second_copy_needs_are_kept() -> None:
    """Segments that an older second copy needs are not deleted."""
    disk = SimFS()
    channel = open_channel(disk)
    expected = fill(channel, 100)
    channel.checkpoint()
    for _ in range(4):
        take(channel, 20)
    before = segments(disk)
    fault = disk.fail("rename", nth=2)
    assert channel.checkpoint()
    assert fault.met == 1
    assert file_stats(channel).checkpoint_backup_errors == 1
    assert segments(disk) == before
    disk = killed(channel, disk)
    flip(disk, CHECKPOINTS[0], 20)
    with opened_channel(disk) as again:
        assert file_stats(again).checkpoint_fallbacks == 1
        assert len(segments(disk)) < len(before)
        assert drained(again) == expected[80:]


def test_a_checkpoint_that_comes_while_one_is_written_waits_for_it() -> None:
    """A second checkpoint waits for the first, and both are written."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, "a")
        begun, go = threading.Event(), threading.Event()

        def slow(operation: str, path: str) -> None:
            if operation == "rename" and not begun.is_set():
                begun.set()
                assert go.wait(60)

        disk.hook = slow
        first = Call(channel.checkpoint)
        assert begun.wait(60)
        second = Call(lambda: channel.checkpoint(force=True))
        put(channel, "b")  # commits do not wait for a checkpoint
        assert take(channel, 2) == ["a", "b"]
        assert not second.done
        go.set()
        assert first.result()
        assert second.result()
        assert file_stats(channel).checkpoints == 3


def test_files_with_similar_names_are_ignored_and_an_empty_segment_is_removed() -> None:
    """Files with similar names are ignored, and an empty segment is removed."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a")
    disk = killed(channel, disk)
    disk.put(f"{DIRECTORY}/log-0000001000", b"")
    disk.put(f"{DIRECTORY}/log-0000001001", bytes(FIRST_RECORD))
    others = ("log-0000000001.gz", "log-0000000001.meta.tmp", "log-1", "log-", "notes.txt", "checkpoint.new")
    for name in others:
        disk.put(f"{DIRECTORY}/{name}", b"something")
    with opened_channel(disk) as again:
        assert drained(again) == ["a"]
        assert "log-0000001000" not in names(disk)
        assert "log-0000001001" not in names(disk)
        assert set(others) - {"checkpoint.new"} <= set(names(disk))
        assert file_stats(again).quarantined == 0


def test_nothing_is_appended_to_a_segment_of_an_earlier_life() -> None:
    """Each opening begins a segment with a new number."""
    disk, seen = SimFS(), set()
    for life in range(4):
        channel = open_channel(disk)
        newest = segments(disk)[-1]
        assert newest not in seen
        seen.update(segments(disk))
        put(channel, str(life))
        disk = killed(channel, disk)
    assert contents(disk) == ["0", "1", "2", "3"]


def test_the_channel_can_be_reopened_again_and_again() -> None:
    """Ten kills and reopenings keep every committed event."""
    disk, owed, number = SimFS(), [], 0
    for life in range(10):
        channel = open_channel(disk)
        assert channel.stats().size == len(owed)
        for _ in range(1 + life * 7 % 5):
            new = [f"{number + step:06}".ljust(400, ".") for step in range(9)]
            number += 9
            put(channel, *new)
            owed += new
            got = take(channel, 1 + life)
            assert got == owed[: len(got)]
            del owed[: len(got)]
        opened(channel).take(3)
        disk = killed(channel, disk)
    assert contents(disk) == owed


@pytest.mark.parametrize("left", range(0, 200, 7))
def test_a_torn_end_is_cut_kept_aside_counted_and_logged_once(left: int, caplog: pytest.LogCaptureFixture) -> None:
    """A torn end is cut off, quarantined, counted and logged once."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a", "b")
    path = segments(disk)[-1]
    whole = end_of(disk, path)
    put(channel, "never", "acknowledged")
    written = end_of(disk, path)
    disk = killed(channel, disk)
    size = min(whole + left, written - 1)
    cut(disk, path, size)
    torn_end = disk.content(path)[whole:].rstrip(b"\0")
    for life in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING), opened_channel(disk) as again:
            torn = life == 0 and size > whole
            assert file_stats(again).torn_tails == torn
            assert len(re.findall("was torn by a crash", caplog.text)) == torn
            assert (file_stats(again).damaged_records, file_stats(again).lost_events) == (0, 0)
            taking = opened(again)
            assert bodies(taking.take(10)) == ["a", "b"]
            taking.rollback()
            assert put(again, f"new {life}") == 3 + life
            with again.transaction() as transaction:
                transaction.acknowledge(transaction.take(3)[2:])
                transaction.rollback()
    kept = disk.names(f"{DIRECTORY}/quarantine") if size > whole else []
    assert kept == ([f"log-0000000001.from-{whole}"] if size > whole else [])
    if size > whole:
        assert disk.content(f"{DIRECTORY}/quarantine/{kept[0]}") == torn_end


@pytest.mark.parametrize("place", ["first", "middle", "last of its transaction", "its commit"])
def test_a_flipped_bit_loses_only_its_record_and_a_damaged_commit_loses_nothing(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A flipped bit loses only its record, and a damaged Commit loses nothing."""
    disk = SimFS()
    channel = open_channel(disk, segment_size=100_000)
    expected = fill(channel, 30, each=3)
    disk = killed(channel, disk)
    for path in CHECKPOINTS:
        disk.unlink(path)
    path = segments(disk)[0]
    lost = {"first": 0, "middle": 13, "last of its transaction": 14}.get(place)
    if lost is None:
        record = [record for record in records(disk, path) if record.kind == Kind.COMMIT][4]
    else:
        record = put_record(disk, expected[lost])[1]
    flip(disk, path, record.offset + 45)
    caplog.set_level(logging.ERROR)
    with opened_channel(disk) as again:
        found = file_stats(again)
        assert (found.damaged_records, found.quarantined, found.torn_tails) == (1, 1, 0)
        assert found.lost_events == (lost is not None)
        lost_events = counted(found.lost_events, "event is", "events are")
        assert f"1 damaged record in segments [1]; {lost_events} lost" in caplog.text
        assert disk.exists(f"{DIRECTORY}/quarantine/log-0000000001.copy")
        assert drained(again) == [body for number, body in enumerate(expected) if number != lost]


def test_a_damaged_stretch_of_several_records_is_counted_by_sequence_numbers() -> None:
    """A damaged stretch loses its events, counted by sequence numbers, and no others."""
    disk = SimFS()
    channel = open_channel(disk, segment_size=100_000)
    expected = fill(channel, 60)
    disk = killed(channel, disk)
    path, first = put_record(disk, expected[20])
    last = put_record(disk, expected[29])[1]
    content = disk.content(path)
    disk.put(path, content[: first.offset] + b"\x55" * (last.end - first.offset) + content[last.end :])
    for name in CHECKPOINTS:
        disk.unlink(name)
    with opened_channel(disk) as again:
        assert file_stats(again).lost_events == 10
        assert file_stats(again).quarantined == 1
        assert drained(again) == expected[:20] + expected[30:]


@pytest.mark.parametrize("headers", ["the first", "the second", "both"])
def test_a_segment_with_one_good_header_is_read_and_one_without_is_set_aside(headers: str) -> None:
    """A segment is quarantined only if both copies of its header are damaged."""
    disk = SimFS()
    channel = open_channel(disk)
    expected = fill(channel, 60)
    disk = killed(channel, disk)
    paths = segments(disk)
    assert len(paths) >= 4
    inside = {record.sequence for record in records(disk, paths[1]) if record.kind == Kind.PUT}
    for offset in {"the first": [20], "the second": [530], "both": [20, 530]}[headers]:
        flip(disk, paths[1], offset)
    with opened_channel(disk) as again:
        found = file_stats(again)
        lost = inside if headers == "both" else set()
        assert found.quarantined == (headers == "both")
        assert found.lost_events == len(lost)
        assert drained(again) == [body for number, body in enumerate(expected, 1) if number not in lost]


def test_a_checkpoint_does_not_grow_with_the_capacity() -> None:
    """The size of a checkpoint depends on the events, not on the capacity."""
    disk = SimFS()
    open_channel(disk, capacity=1_000_000).close()
    assert len(disk.content(CHECKPOINTS[0])) < 200


def test_both_copies_have_the_same_bytes_position_next_numbers_and_events() -> None:
    """Both copies have the same bytes: position, next numbers and events."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, *"abc")
    taking = opened(channel)
    taking.take()
    channel.checkpoint()
    assert disk.content(CHECKPOINTS[0]) == disk.content(CHECKPOINTS[1])
    checkpoint = load(disk, DIRECTORY, "checkpoint")  # type: ignore[arg-type]
    assert checkpoint is not None
    assert encode(checkpoint) == disk.content(CHECKPOINTS[0])
    assert list(checkpoint.events.sequences) == [1, 2, 3]
    assert (checkpoint.next_sequence, checkpoint.next_transaction) == (4, 2)
    assert checkpoint.position.offset == end_of(disk, segments(disk)[-1])
    taking.rollback()
    channel.close()


def test_without_dual_checkpoints_an_older_second_copy_is_removed() -> None:
    """Without dual checkpoints an older second copy is removed."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        expected = fill(channel, 60)
    assert "checkpoint.backup" in names(disk)
    with opened_channel(disk, dual_checkpoints=False) as channel:
        assert take(channel, 50) == expected[:50]
        channel.checkpoint()
        assert "checkpoint.backup" not in names(disk)
    flip(disk, CHECKPOINTS[0], 30)
    assert contents(disk, dual_checkpoints=False) == expected[50:]


def test_closing_writes_a_checkpoint_and_the_next_opening_reads_no_records() -> None:
    """Closing writes a checkpoint, so that the next opening replays nothing."""
    disk = SimFS()
    channel = open_channel(disk)
    expected = fill(channel, 50)
    opened(channel).take(5)
    channel.close()
    with opened_channel(disk) as again:
        assert file_stats(again).replayed == 0
        assert drained(again) == expected


def test_right_after_opening_there_is_a_checkpoint() -> None:
    """An opening writes a checkpoint, so that a kill right after it costs no second replay."""
    disk = SimFS()
    channel = open_channel(disk)
    expected = fill(channel, 50)
    disk = killed(channel, disk)
    channel = open_channel(disk)
    assert file_stats(channel).replayed == 100
    disk = killed(channel, disk)
    with opened_channel(disk) as again:
        assert file_stats(again).replayed == 0
        assert drained(again) == expected


def test_a_long_replay_logs_its_progress_every_few_seconds(caplog: pytest.LogCaptureFixture) -> None:
    """A long replay logs its progress every few seconds."""
    import producer.channels.file.recovery.replay as replay
    from producer.testing import ManualClock

    disk = SimFS()
    channel = open_channel(disk)
    fill(channel, 40)
    disk = killed(channel, disk)
    clock = ManualClock()
    disk.hook = lambda operation, path: clock.advance(6) if operation == "read" else None
    caplog.set_level(logging.INFO)
    records = replay._RECORDS_PER_CHECK
    replay._RECORDS_PER_CHECK = 1
    try:
        open_channel(disk, clock=clock).close()
    finally:
        replay._RECORDS_PER_CHECK = records
    assert re.search(r"channel channel: \d+ records replayed in \d+ s, at segment 2 of 3", caplog.text)
    assert "channel channel: 40 events recovered from /channel" in caplog.text


def test_one_stuck_event_does_not_keep_the_files_behind_it() -> None:
    """One unacknowledged event keeps only its own segment."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        expected = fill(channel, 150)
        stuck = opened(channel)
        stuck.take()
        assert take(channel, 149) == expected[1:]
        channel.checkpoint()
        assert segments(disk)[0].endswith("log-0000000001")
        assert len(segments(disk)) == 2
    assert contents(disk) == expected[:1]


def test_without_checkpoints_a_live_keeps_taken_events_from_coming_back() -> None:
    """Without checkpoints a Live keeps taken events from coming back after their segments are deleted."""
    for generations in (1, 2, 5):
        disk = SimFS()
        channel = open_channel(disk)
        expected = fill(channel, 150)
        stuck = opened(channel)
        stuck.take()
        assert take(channel, 149) == expected[1:]
        for _ in range(generations):  # each Live is repeated before its segment is deleted
            last = fill(channel, 30)
            channel.checkpoint()
            assert take(channel, 30) == last
        last = fill(channel, 30)
        channel.checkpoint()
        assert [record.kind for record in records(disk, segments(disk)[0])].count(Kind.PUT) > 1
        takes = [record.payload for record in log(disk) if record.kind == Kind.TAKE]
        assert all(sequence > 150 for payload in takes for sequence in struct.unpack(f"<{len(payload) // 8}Q", payload))
        channel.close()
        for path in CHECKPOINTS:
            disk.unlink(path)
        with opened_channel(disk) as channel:
            assert file_stats(channel).lost_events == 0
            assert drained(channel) == [*expected[:1], *last]


def test_a_take_that_failed_does_not_count_because_its_void_is_gone() -> None:
    """A failed take stays void, because the segment that voids it outlives it."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "stuck", "kept")
    taking = opened(channel)
    assert bodies(taking.take(2)) == ["stuck", "kept"]
    disk.fail("sync", times=2)
    with pytest.raises(ChannelIOError):
        taking.commit()
    taking.rollback()
    disk.heal()
    expected = fill(channel, 60)
    stuck = opened(channel)
    stuck.take(2)
    assert take(channel, 60) == expected
    for _ in range(3):
        channel.checkpoint(force=True)
    disk = killed(channel, disk)
    for path in CHECKPOINTS:
        disk.unlink(path)
    assert contents(disk) == ["stuck", "kept"]


def test_opening_again_after_it_could_not_be_opened() -> None:
    """A failed opening releases the directory and loses nothing."""
    disk, owed = history(SimFS())
    for operation in ("read", "open", "names", "sync", "create", "append"):
        fault = disk.fail(operation)
        with pytest.raises(OSError, match="channel channel: "):
            open_channel(disk)
        assert fault.met == 1
        assert disk.open_files == []
    disk.heal()
    assert contents(disk) == owed
    eventually(lambda: not disk.open_files)
