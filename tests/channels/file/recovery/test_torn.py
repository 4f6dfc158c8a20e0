"""Torn or damaged: no half of an uncommitted transaction is delivered."""

import pytest

from producer.channels.file.recovery.torn import has_lost_sector
from tests.channels.file.opening import (
    CHECKPOINTS,
    contents,
    cut,
    file_stats,
    flip,
    killed,
    open_channel,
    opened_channel,
    put_record,
)
from tests.channels.helpers import drained, put
from tests.support.sim_fs import SimFS


@pytest.mark.parametrize("checkpoint", ["with", "without"])
def test_a_torn_transaction_is_dropped_whole_even_if_one_of_its_records_is_damaged_too(checkpoint: str) -> None:
    """A torn transaction is dropped whole, even if one of its records is damaged, too."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a")
    put(channel, "never", "acknowledged", "at all")
    disk = killed(channel, disk)
    path, last = put_record(disk, "at all")
    cut(disk, path, last.end)
    flip(disk, path, last.offset - 3)  # the end of the record before it
    if checkpoint == "without":
        for name in CHECKPOINTS:
            disk.unlink(name)
    with opened_channel(disk) as again:
        assert drained(again) == ["a"]
        assert file_stats(again).torn_tails == 1
    assert contents(disk) == []


def test_sectors_that_were_never_written_are_seen() -> None:
    """A part of a sector counts as unwritten only if it is all zeros."""
    data = bytearray(b"\1" * 2048)
    assert not has_lost_sector(bytes(data), 0, 2048)
    data[600:1000] = bytes(400)
    assert not has_lost_sector(bytes(data), 0, 2048)
    assert has_lost_sector(bytes(data), 600, 1000)
    data[512:1024] = bytes(512)
    assert has_lost_sector(bytes(data), 0, 2048)
    assert not has_lost_sector(bytes(data), 0, 512)
    data[2040:] = bytes(8)
    assert has_lost_sector(bytes(data), 2040, 2048)
    assert not has_lost_sector(b"", 0, 0)
