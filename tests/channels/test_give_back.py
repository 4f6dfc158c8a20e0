"""Giving back some takes, the same for every channel."""

from collections.abc import Callable
from pathlib import Path

import pytest

from producer.channels import Event, FileChannel, MemoryChannel, SpillableChannel
from producer.model.interfaces import Channel


def _file(directory: Path) -> Channel:
    return FileChannel(directory / "file", checkpoint_interval=None, minimum_free_space=0, reserve=0)


def _spillable(directory: Path) -> Channel:
    return SpillableChannel(MemoryChannel(capacity=4, transaction_capacity=4), _file(directory))


@pytest.mark.parametrize("make", [lambda _: MemoryChannel(), _file, _spillable], ids=["memory", "file", "spillable"])
def test_events_given_back_return_to_their_places_and_the_others_stay_taken(
    make: Callable[[Path], Channel], tmp_path: Path
) -> None:
    """Events given back return to their places, and the others stay taken."""
    with make(tmp_path) as channel:
        for n in range(8):
            with channel.transaction() as putting:
                putting.put(Event({}, str(n).encode()))
        taking = channel.transaction()
        taking.begin()
        taken = [event for _ in range(6) for event in taking.take(1, timeout=1)]
        assert [event.body for event in taken] == [b"0", b"1", b"2", b"3", b"4", b"5"]
        taking.give_back([taken[4], taken[1], Event(sequence=10**9)])
        assert (channel.stats().size, channel.stats().taken) == (4, 4)
        again = [event for _ in range(4) for event in taking.take(1, timeout=1)]
        assert [event.body for event in again] == [b"1", b"4", b"6", b"7"]
        taking.acknowledge([taken[0], again[0], *taken[2:4], again[1], taken[5], *again[2:]])
        taking.commit()
        taking.close()
        assert (channel.stats().size, channel.stats().taken, channel.stats().bytes) == (0, 0, 0)


def test_events_given_back_survive_a_crash_in_order(tmp_path: Path) -> None:
    """Events given back survive a crash, in order."""
    with _file(tmp_path) as channel:
        with channel.transaction() as putting:
            putting.put_many([Event({}, b"a"), Event({}, b"b")])
        taking = channel.transaction()
        taking.begin()
        first, _ = taking.take(2, timeout=1)
        taking.give_back([first])
        assert isinstance(channel, FileChannel)
        channel.checkpoint(force=True)
    with _file(tmp_path) as channel, channel.transaction() as taking:
        assert [event.body for event in taking.take(5, timeout=0)] == [b"a", b"b"]
