"""One history, again and again, in which the first operation on the disk fails, then the second, and so on.

The machine of the model plays it, so that everything is checked on the way; afterwards the disk is good again, and
nothing that was acknowledged is lost.
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

#: What is done to the disk while a channel is used; and while one is opened whose end is torn.
IN_USE = ("append", "sync", "create", "rename", "unlink", "truncate", "sync_directory", "open", "read", "free", "*")
IN_OPENING = (*IN_USE, "names", "lock", "rewrite", "allocate", "make_directory")

TIMES = {1: "once", 2: "twice", None: "for ever"}
times = pytest.mark.parametrize("times", TIMES, ids=TIMES.values())


def play(machine: ChannelMachine) -> None:
    """Puts over several segments, takes, acknowledgements, a rollback, broken writes, checkpoints, syncs."""
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
    for _ in range(2):  # the first falls on the header of a segment, the second on a transaction
        machine.fault("append", 1, errno.EIO, 1, 40)
        machine.put_and_commit(1, 2)
    machine.take_and_commit(6, 5)
    machine.checkpoint()
    machine.put_and_commit(2, 1)
    machine.check()


def play_with_every_error(kind: type[ChannelMachine], operation: str, times: int | None) -> None:
    """Until the error is not reached any more; each history ends with the death of the machine, or of both."""
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
@pytest.mark.parametrize("operation", [*IN_USE, "lay_out"])
def test_an_error_in_use_loses_nothing(operation: str, times: int | None) -> None:
    """Whichever call fails, everything acknowledged is there afterwards, also if the machine dies then."""
    play_with_every_error(ChannelMachine, operation, times)


@pytest.mark.parametrize("operation", IN_USE)
def test_an_error_in_use_loses_nothing_where_syncs_follow(operation: str) -> None:
    """With a sync at intervals a single error of any kind loses nothing that was synced, and makes no hole."""
    play_with_every_error(IntervalMachine, operation, 1)


def torn() -> tuple[SimFS, list[str]]:
    """A disk with a channel whose end was torn by a crash, and what is in it."""
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
    """A channel that cannot be opened says so and gives all files back; the next one has what there was."""
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
