"""Checkpoint files: bytes, checks and atomic replacement; Flume's TestEventQueueBackingStoreFactory."""

import errno
import struct
from typing import cast
from zlib import crc32

import pytest

from producer.channels.file.log.run import Position
from producer.channels.file.queue.event_queue import Columns
from producer.channels.file.recovery.checkpoint import (
    BACKUP_NAME,
    EVENT_SIZE,
    NAME,
    BadCheckpointError,
    Checkpoint,
    check_fits,
    decode,
    emptied,
    encode,
    load,
    load_best,
    write,
    write_both,
)
from producer.channels.file.store.disk import Disk
from producer.channels.file.store.pointers import Entry
from tests.channels.file.opening import CHECKPOINTS, file_stats, fill, open_channel, opened_channel, segments
from tests.channels.helpers import drained, put
from tests.support.sim_fs import SimFS

SALTS = {3: bytes(16), 4: bytes(range(16))}
SIZES = {3: 4000, 4: 2000}


def made(generation: int = 5, *, events: int = 3, segment: int = 4, offset: int = 1000) -> Checkpoint:
    columns = Columns()
    for number in range(events):
        columns.append(Entry(10 + number, 3 << 32 | 640 + 50 * number, 100 + number, 1.5 + number))
    return Checkpoint(generation, Position(segment, offset), 99, 77, SALTS, columns)


def a_disk(**files: bytes) -> tuple[SimFS, Disk]:
    disk = SimFS()
    disk.make_directory("/c")
    for name, content in files.items():
        disk.put(f"/c/{name}", content)
    return disk, cast("Disk", disk)


@pytest.mark.parametrize("events", [0, 1, 1000])
def test_a_checkpoint_is_decoded_as_it_was_encoded_numbers_salts_and_events(events: int) -> None:
    """A checkpoint is decoded as it was encoded: numbers, salts and events."""
    checkpoint = made(events=events)
    again = decode(encode(checkpoint))
    assert (again.generation, again.position, again.next_sequence, again.next_transaction) == (
        5,
        Position(4, 1000),
        99,
        77,
    )
    assert again.segments == SALTS
    assert again.events.entries(0, events) == checkpoint.events.entries(0, events)
    assert len(encode(checkpoint)) == 72 + 2 * 24 + events * EVENT_SIZE + 4


def test_segments_that_end_before_a_checkpoints_events_are_reported_with_these_events() -> None:
    """Segments that end before a checkpoint's events are reported with these events."""
    assert emptied(None, {}) == {}
    assert emptied(made(), SIZES) == {}
    assert emptied(made(), {**SIZES, 4: 999}) == {4: frozenset()}
    assert emptied(made(), {**SIZES, 3: 860}) == emptied(made(), {4: 2000}) == {3: frozenset({10, 11, 12})}


def test_its_bytes_are_as_documented() -> None:
    """The bytes of a checkpoint are as documented."""
    data = encode(made(events=2))
    assert data[:16] == b"LHCHECKP" + b"\1\0" + bytes(6)
    assert struct.unpack("<7Q", data[16:72]) == (5, 4, 1000, 99, 77, 2, 2)
    assert struct.unpack("<Q16sQ16s", data[72:120]) == (3, SALTS[3], 4, SALTS[4])
    assert struct.unpack("<2Q2Q2I2d", data[120:-4]) == (
        *(10, 11),
        *(3 << 32 | 640, 3 << 32 | 690),
        *(100, 101),
        *(1.5, 2.5),
    )
    assert struct.unpack("<I", data[-4:]) == (crc32(data[:-4]),)


def test_every_byte_and_every_length_is_checked() -> None:
    """A checkpoint with any changed, missing or extra byte is refused with a reason."""
    data = encode(made())
    for offset in range(len(data)):
        damaged = bytearray(data)
        damaged[offset] ^= 1
        with pytest.raises(BadCheckpointError, match=r"checksum is wrong|not a checkpoint"):
            decode(bytes(damaged))
    for size in range(len(data)):
        with pytest.raises(BadCheckpointError):
            decode(data[:size])
    with pytest.raises(BadCheckpointError):
        decode(data + b"\0")


def test_a_newer_version_is_refused_with_both_versions_in_the_text() -> None:
    """A newer version is refused with both versions in the text."""
    body = bytearray(encode(made())[:-4])
    body[8] = 2
    with pytest.raises(BadCheckpointError, match="it is of version 2; this package reads version 1"):
        decode(bytes(body) + struct.pack("<I", crc32(body)))


def test_it_has_to_fit_the_segments() -> None:
    """A checkpoint of another log, or with an invalid position, is refused; deleted segments do not matter."""
    check_fits(made(), SALTS, SIZES)
    check_fits(made(), {4: SALTS[4]}, {4: 1000})
    check_fits(made(), SALTS | {9: b"x" * 16}, SIZES | {9: 640})
    for salts, sizes, reason in (
        (SALTS | {3: b"other salt......"}, SIZES, "it belongs to another segment 3"),
        ({3: SALTS[3]}, SIZES, "segment 4, where replay would start, does not exist"),
        (SALTS, {3: 4000, 4: 999}, "segment 4 ends before its position 1000"),
        ({}, {}, "segment 4, where replay would start, does not exist"),
    ):
        with pytest.raises(BadCheckpointError, match=reason):
            check_fits(made(), salts, sizes)


@pytest.mark.parametrize(
    ("first", "second", "generation", "bad"),
    [
        (5, 5, 5, 0),
        (5, 6, 6, 0),
        (6, 5, 6, 0),
        (5, None, 5, 0),
        (None, 5, 5, 0),
        (None, None, None, 0),
        ("bad", 5, 5, 1),
        (5, "bad", 5, 1),
        ("bad", "bad", None, 2),
        ("bad", None, None, 1),
    ],
)
def test_the_newest_good_copy_is_chosen(first: object, second: object, generation: int | None, bad: int) -> None:
    """The newest valid copy is used, and invalid ones are counted."""
    disk, as_disk = a_disk()
    for name, what in ((NAME, first), (BACKUP_NAME, second)):
        if what is not None:
            disk.put(f"/c/{name}", b"rubbish" if what == "bad" else encode(made(cast("int", what))))
    chosen, fallbacks = load_best(as_disk, "/c", "name", SALTS, SIZES)
    assert (None if chosen is None else chosen.generation, fallbacks) == (generation, bad)


def test_one_that_cannot_be_read_is_a_bad_one() -> None:
    """An unreadable checkpoint counts as invalid, and the channel opens."""
    disk, as_disk = a_disk(**{NAME: encode(made(6)), BACKUP_NAME: encode(made(5))})
    disk.fail("read")
    chosen, bad = load_best(as_disk, "/c", "name", SALTS, SIZES)
    assert chosen is not None
    assert (chosen.generation, bad) == (5, 1)
    disk.fail("open", times=None)
    assert load_best(as_disk, "/c", "name", SALTS, SIZES) == (None, 2)


def test_it_is_written_beside_its_place_synced_renamed_and_the_directory_synced() -> None:
    """A checkpoint is written to another name, synced, renamed, and its directory synced."""
    disk, as_disk = a_disk()
    before = len(disk.calls)
    write(as_disk, "/c", NAME, b"data")
    done = [(call.operation, call.path) for call in disk.calls[before:] if call.operation != "unlink"]
    new = "/c/checkpoint.new"
    assert done == [
        ("create", new),
        ("append", new),
        ("sync", new),
        ("close", new),
        ("rename", new),
        ("sync_directory", "/c"),
    ]
    assert (disk.content("/c/checkpoint"), disk.open_files) == (b"data", [])


@pytest.mark.parametrize("operation", ["create", "append", "sync", "rename"])
def test_an_error_while_it_is_written_leaves_the_one_before(operation: str) -> None:
    """A failed write leaves the previous checkpoint and no partial file."""
    disk, as_disk = a_disk(**{NAME: b"before"})
    disk.fail(operation, written=2)
    with pytest.raises(OSError, match="Input/output"):
        write(as_disk, "/c", NAME, b"after")
    assert (disk.content("/c/checkpoint"), disk.open_files) == (b"before", [])
    assert disk.names("/c") == ["checkpoint"]
    write(as_disk, "/c", NAME, b"after")
    assert disk.content("/c/checkpoint") == b"after"
    assert disk.names("/c") == ["checkpoint"]


@pytest.mark.parametrize("name", [NAME, BACKUP_NAME])
def test_an_opening_first_removes_a_partial_checkpoint_which_may_fill_the_disk(name: str) -> None:
    """An opening first removes a partial checkpoint, which may fill the disk."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a")
    channel.close()
    disk.put(f"/channel/{name}.new", bytes(100_000))
    disk.capacity = disk.used
    with opened_channel(disk) as again:
        put(again, "b")
        assert drained(again) == ["a", "b"]
    assert not disk.exists(f"/channel/{name}.new")


@pytest.mark.parametrize("seed", range(40))
def test_after_a_crash_one_of_the_two_is_there_whole(seed: int) -> None:
    """After a crash the old or the new checkpoint is there, never a part."""
    old, new = encode(made(5, events=100)), encode(made(6, events=200))
    disk, as_disk = a_disk(**{NAME: old})
    disk.sync_directory("/c")
    disk.die_after(seed % 7)
    try:
        write(as_disk, "/c", NAME, new)
    except OSError:
        assert disk.dead
    assert disk.crash(seed).content("/c/checkpoint") in (old, new)


def test_the_second_copy_follows_the_first_and_may_fail() -> None:
    """An error of the first copy is raised, one of the second is returned."""
    disk, as_disk = a_disk(**{NAME: b"1", BACKUP_NAME: b"1"})
    disk.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        write_both(as_disk, "/c", (NAME, BACKUP_NAME), b"2")
    assert (disk.content("/c/checkpoint"), disk.content("/c/checkpoint.backup")) == (b"1", b"1")
    disk.fail("sync", nth=2, number=errno.ENOSPC)
    error = write_both(as_disk, "/c", (NAME, BACKUP_NAME), b"2")
    assert error is not None
    assert error.errno == errno.ENOSPC
    assert (disk.content("/c/checkpoint"), disk.content("/c/checkpoint.backup")) == (b"2", b"1")
    assert write_both(as_disk, "/c", (NAME, BACKUP_NAME), b"3") is None
    assert disk.content("/c/checkpoint.backup") == b"3"


def test_a_file_of_any_content_never_breaks_the_opening() -> None:
    """With rubbish in both copies the channel opens from the log."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        expected = fill(channel, 20)
    for path in CHECKPOINTS:
        disk.put(path, b"this is no checkpoint at all, but it is long enough to be taken for one" * 3)
    with opened_channel(disk) as again:
        assert file_stats(again).checkpoint_fallbacks == 2
        assert drained(again) == expected


def test_the_generation_grows_through_restarts() -> None:
    """The generation grows across restarts, whatever the clock."""
    disk, seen = SimFS(), []
    for _ in range(3):
        with opened_channel(disk) as channel:
            put(channel, "a")
            channel.checkpoint()
            checkpoint = load(cast("Disk", disk), "/channel", NAME)
            assert checkpoint is not None
            seen.append(checkpoint.generation)
    assert seen == sorted(set(seen))


def test_segments_go_only_when_both_copies_are_on_the_disk() -> None:
    """No segment is deleted before both copies are synced under their names."""
    disk = SimFS()
    channel = open_channel(disk)
    fill(channel, 100)
    drained(channel)
    before = len(disk.calls)
    assert len(segments(disk)) > 3
    channel.checkpoint()
    done = [f"{call.operation} {call.path.rpartition('/')[2]}" for call in disk.calls[before:]]
    first = next(place for place, text in enumerate(done) if text.startswith("unlink log-"))
    assert done[:first].count("sync_directory channel") == 2
    assert done[:first].count("rename checkpoint.new") == done[:first].count("rename checkpoint.backup.new") == 1
    assert not any(text.startswith("rename") for text in done[first:])
    assert len(segments(disk)) == 1
    channel.close()
