"""Helpers to open file channels on a simulated disk with tiny limits, and to read their files."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

from producer.channels import FileChannel
from producer.channels.file.recovery.inspection import DirectoryReport, examine
from producer.channels.file.store.disk import Disk
from producer.channels.file.store.format import (
    FIRST_RECORD,
    FRAME_SIZE,
    Kind,
    SegmentHeader,
    decode_event,
    decode_segment_header,
)
from producer.channels.file.store.segment import Record, scan
from producer.model.interfaces import FileStats
from producer.testing import ManualClock
from tests.channels.helpers import drained, put
from tests.support.sim_fs import SimFS

DIRECTORY = "/channel"
SEGMENT = 4096
CHECKPOINTS = (f"{DIRECTORY}/checkpoint", f"{DIRECTORY}/checkpoint.backup")


def open_channel(disk: SimFS | None = None, **options: Any) -> FileChannel:
    """Open a channel with tiny segments and no background work, on this disk or a new one."""
    capacity = options.get("capacity", 1000)
    known: dict[str, Any] = {
        "capacity": capacity,
        "transaction_capacity": min(1000, capacity) if isinstance(capacity, int) else 1,
        "keep_alive": 0,
        "segment_size": SEGMENT,
        "checkpoint_interval": None,
        "minimum_free_space": 0,
        "reserve": 0,
        "clock": ManualClock(),
    }
    return FileChannel(
        options.pop("directory", DIRECTORY), disk=cast("Disk", SimFS() if disk is None else disk), **known | options
    )


@contextmanager
def opened_channel(disk: SimFS | None = None, **options: Any) -> Iterator[FileChannel]:
    channel = open_channel(disk, **options)
    try:
        yield channel
    finally:
        channel.close()


def file_stats(channel: FileChannel) -> FileStats:
    """Return the file channel's part of the statistics."""
    stats = channel.stats().file
    assert stats is not None
    return stats


def killed(channel: FileChannel, disk: SimFS) -> SimFS:
    """Kill the process: return the disk with everything written, and close the channel on the dead one."""
    after = disk.kill()
    channel.close()
    return after


def names(disk: SimFS, directory: str = DIRECTORY) -> list[str]:
    return disk.names(directory)


def segments(disk: SimFS, directory: str = DIRECTORY) -> list[str]:
    """Return the paths of all segments in a directory, oldest first."""
    return [f"{directory}/{name}" for name in names(disk, directory) if name.startswith("log-")]


def header(disk: SimFS, path: str) -> SegmentHeader:
    found = decode_segment_header(disk.content(path)[:FIRST_RECORD])
    assert found is not None
    return found


class Written(NamedTuple):
    """A record of a segment, with its payload."""

    kind: int
    offset: int
    sequence: int
    transaction: int
    remaining: int
    payload: bytes

    @property
    def end(self) -> int:
        return self.offset + FRAME_SIZE + len(self.payload)


def records(disk: SimFS, path: str) -> list[Written]:
    """Return every record of a valid segment."""
    data = disk.content(path)
    found = []
    for item in scan(data, header(disk, path)):
        assert isinstance(item, Record), f"{path} is damaged at {item.start}"
        start = item.offset + FRAME_SIZE
        payload = data[start : start + item.length]
        found.append(Written(item.kind, item.offset, item.sequence, item.transaction, item.remaining, payload))
    return found


def log(disk: SimFS, directory: str = DIRECTORY) -> list[Written]:
    """Return every record of all segments of a directory."""
    return [record for path in segments(disk, directory) for record in records(disk, path)]


def end_of(disk: SimFS, path: str) -> int:
    """Return the end of the last record of a segment, before any preallocated zeros."""
    return records(disk, path)[-1].end


def put_record(disk: SimFS, body: str) -> tuple[str, Written]:
    """Return the segment and the Put of the event with this body."""
    for path in segments(disk):
        for record in records(disk, path):
            if record.kind == Kind.PUT and decode_event(record.payload, 1).body == body.encode():
                return path, record
    raise AssertionError(f"no Put of {body}")


def flip(disk: SimFS, path: str, offset: int) -> None:
    """Flip one bit of a file, on the disk as well."""
    content = bytearray(disk.content(path))
    content[offset] ^= 0x10
    disk.put(path, bytes(content))


def zero(disk: SimFS, path: str, start: int, end: int) -> None:
    content = disk.content(path)
    disk.put(path, content[:start] + bytes(end - start) + content[end:])


def look(disk: SimFS, **options: Any) -> DirectoryReport:
    """Inspect the channel without opening it."""
    return examine(DIRECTORY, disk=cast("Disk", disk), **options)


def cut(disk: SimFS, path: str, size: int) -> None:
    """Keep the first ``size`` bytes of a file; a negative number removes as many."""
    disk.put(path, disk.content(path)[:size])


def contents(disk: SimFS, **options: Any) -> list[str]:
    """Open a channel, take everything, and close it; return the bodies."""
    with opened_channel(disk, **options) as channel:
        return drained(channel)


def fill(channel: FileChannel, count: int, *, size: int = 100, each: int = 1) -> list[str]:
    """Put ``count`` events of about ``size`` bytes, ``each`` in a transaction; return their bodies."""
    bodies = [f"{number:06}".ljust(size, ".") for number in range(count)]
    for start in range(0, count, each):
        put(channel, *bodies[start : start + each])
    return bodies
