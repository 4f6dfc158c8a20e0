"""One history, repeated with a failure of the first disk operation, then of the second, and so on.

The state machine plays it, so that every step is checked. Afterwards the disk works, and no acknowledged event is lost.
"""

import errno
from itertools import count

import pytest

from producer.model.errors import ChannelIOError
from tests.channels.file.machine import ChannelMachine, IntervalMachine
from tests.channels.file.opening import contents, file_stats, fill, open_channel, opened_channel
from tests.channels.helpers import drained, take
from tests.support.sim_fs import SimFS

pytestmark = pytest.mark.usefixtures("read_back")

#: Disk operations of a channel in use, and of an opening with a torn end.
IN_USE = ("append", "sync", "create", "rename", "unlink", "truncate", "sync_directory", "open", "read", "free", "*")
IN_OPENING = (*IN_USE, "names", "lock", "rewrite", "allocate", "make_directory")

TIMES = {1: "once", 2: "twice", None: "for ever"}
times = pytest.mark.parametrize("times", TIMES, ids=TIMES.values())


def play(machine: ChannelMachine) -> None:
    """Play puts over several segments, takes, acknowledgements, a rollback, partial writes, checkpoints and syncs."""
    machine.put_and_commit(4, 2)
    machine.take_and_commit(3, 1)
    machine.checkpoint()
    machine.put(1, 3)
    machine.take(0, 4, None)
    if machine._taken:
        machine.acknowledge(0, 0b101)
    machine.put_and_commit(4, 2)
    if machine.open:
        machine.roll_back(0)
    machine.sync()
    for _ in range(2):  # first for a segment's header, then for a transaction
        machine.fault("append", 1, errno.EIO, 1, 40)
        machine.put_and_commit(1, 2)
    machine.take_and_commit(6, 5)
    machine.checkpoint()
    machine.put_and_commit(2, 1)
    machine.check()


def play_with_every_error(kind: type[ChannelMachine], operation: str, times: int | None) -> None:
    """Repeat until the error is not reached; each history ends with a crash."""
    for nth in count(1):
        machine = kind()
        fault = machine.disk.fail(operation, nth, times=times)
        machine.faults.append(fault)
        play(machine)
        machine.heal()
        if nth % 2:
            machine.kill()
        machine.crash(nth)
        machine.teardown()
        if not fault.met:
            break
    assert nth > 1, f"{operation} was never reached"


@times
@pytest.mark.parametrize("operation", [*IN_USE, "preallocate"])
def test_an_error_in_use_loses_nothing(operation: str, times: int | None) -> None:
    """A failure of any call loses no acknowledged event."""
    play_with_every_error(ChannelMachine, operation, times)


@pytest.mark.parametrize("operation", IN_USE)
def test_an_error_in_use_loses_nothing_where_syncs_follow(operation: str) -> None:
    """With a sync interval a single error loses no synced event."""
    play_with_every_error(IntervalMachine, operation, 1)


def torn() -> tuple[SimFS, list[str]]:
    """Return a disk with a torn channel, and its events."""
    for seed in range(100):
        disk = SimFS()
        channel = open_channel(disk)
        fill(channel, 40, size=300, each=4)
        take(channel, 9)
        disk.die_after(seed % 10)
        with pytest.raises(ChannelIOError):
            fill(channel, 4, size=300, each=4)
        disk = disk.crash(seed)
        channel.close()
        with opened_channel(disk.copy()) as whole:
            if file_stats(whole).torn_tails:
                return disk, drained(whole)
    raise AssertionError("no crash tears a commit")


@times
@pytest.mark.parametrize("operation", IN_OPENING)
def test_an_error_in_opening_loses_nothing(operation: str, times: int | None) -> None:
    """A failed opening raises and closes all files, and the next one recovers everything."""
    found, expected = torn()
    for nth in count(1):
        disk = found.copy()
        fault = disk.fail(operation, nth, times=times)
        try:
            open_channel(disk, reserve=2000).close()
        except ChannelIOError:
            assert fault.met
        disk.heal()
        assert disk.open_files == []
        assert contents(disk.copy()) == expected, f"{operation} {nth}"
        assert contents(disk.crash(nth)) == expected, f"{operation} {nth}, and a crash"
        if not fault.met:
            break
    assert nth > 1, f"{operation} was never reached"
