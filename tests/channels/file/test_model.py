"""Random histories, crashes included, keep every promise of the file channel; what once broke one is kept below.

``PRODUCER_SOAK=1`` runs many more histories, other ones each time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from producer.errors import ChannelIOError
from tests.channels.file.machine import SEEN, ChannelMachine, IntervalMachine, OsMachine

SOAK = os.environ.get("PRODUCER_SOAK") == "1"
EXAMPLES = 5_000 if SOAK else 250
_HISTORIES = settings(max_examples=EXAMPLES, stateful_step_count=50, derandomize=not SOAK, print_blob=True)

ChannelMachine.TestCase.settings = _HISTORIES
OsMachine.TestCase.settings = _HISTORIES
IntervalMachine.TestCase.settings = _HISTORIES
soak = pytest.mark.timeout(7200 if SOAK else 120)


@soak
class TestCommit(ChannelMachine.TestCase):  # type: ignore[name-defined,misc]
    """With ``fsync="commit"`` no crash loses what was committed, and none brings back what was taken."""


@soak
class TestOs(OsMachine.TestCase):  # type: ignore[name-defined,misc]
    """With ``fsync="os"`` the death of the process loses nothing, that of the machine at most the end."""


@soak
class TestInterval(IntervalMachine.TestCase):  # type: ignore[name-defined,misc]
    """With a sync at intervals likewise, also if a sync fails."""


# What was found by these machines, in the smallest form.


@pytest.fixture
def machine() -> Iterator[ChannelMachine]:
    """With ``fsync="commit"``."""
    yield from _machine(ChannelMachine)


@pytest.fixture
def lazy(request: pytest.FixtureRequest) -> Iterator[ChannelMachine]:
    """With the policy that the test names."""
    yield from _machine(request.param)


def _machine(kind: type[ChannelMachine]) -> Iterator[ChannelMachine]:
    machine = kind()
    yield machine
    machine.counters_are_true()
    machine.teardown()


both = pytest.mark.parametrize("lazy", [OsMachine, IntervalMachine], indirect=True)


def test_a_checkpoint_never_goes_on_in_a_segment_that_a_crash_can_remove(machine: ChannelMachine) -> None:
    """The segment at which a checkpoint points is on the disk before it, even if nothing was written to it yet."""
    machine.put_and_commit(count=3, times=2)
    machine.take_and_commit(count=1, times=1)
    machine.damage_a_checkpoint(copy="checkpoint", how="gone")
    machine.end_in_the_middle(opening=False, operations=0, seeds=(1, 0))


def test_a_torn_transaction_counts_as_no_loss(machine: ChannelMachine) -> None:
    """What a crash has torn in the middle of a commit was never acknowledged: nothing is lost, nothing is damaged."""
    machine.put_and_commit(count=1, times=2)
    machine.power_fails_soon(operations=4, seed=0)
    machine.put_and_commit(count=3, times=1)
    assert machine.channel.stats().file.damaged_records == 0  # type: ignore[union-attr]


def test_room_that_was_made_is_seen_at_once(machine: ChannelMachine) -> None:
    """A full disk that has room again takes the next put, however short a time ago it was looked at."""
    machine.put(count=1, which=0)
    machine.disk_fills(room=0)
    machine.checkpoint()
    machine.put(count=1, which=0)
    machine.put_and_commit(count=1, times=1)
    machine.disk_fills(room=None)
    machine.put_and_commit(count=1, times=2)


def test_events_that_cannot_be_read_stay_in_the_channel(machine: ChannelMachine) -> None:
    """However often reading fails, nothing is lost: once the disk can be read again, the events come."""
    machine.put_and_commit(count=1, times=2)
    machine.fault(nth=1, number=5, operation="open", times=None, written=0)
    for _ in range(4):
        machine.take_and_commit(count=1, times=1)
    machine.heal()
    machine.checkpoint()
    machine.take_and_commit(count=2, times=1)
    assert machine.model.visible == []


def test_what_could_not_be_synced_is_not_seen_by_the_next_process(machine: ChannelMachine) -> None:
    """What a failed commit left in the cache is cut off: nobody sees it now and has half of it after a crash."""
    machine.put(count=4, which=0)
    machine.disk.fail("sync", times=2)
    with pytest.raises(ChannelIOError):
        machine.open[0].transaction.commit()
    machine.model.doubt(1, machine.open[0].puts, ())
    machine.kill()
    assert machine.model.visible == []


@pytest.mark.parametrize("what", ["put", "take"])
def test_what_failed_is_void_once_something_was_committed(what: str) -> None:
    """Whatever a failed commit left on the disk, after the next commit no crash brings it back to life."""
    for seed in range(30):
        machine = ChannelMachine()
        machine.put_and_commit(count=1, times=5)
        machine.disk.fail("truncate")
        machine.fault("sync", 1, errno.EIO, 2, 0)
        machine._do(what)
        machine.heal()
        machine.roll_back(0)
        machine.put_and_commit(count=1, times=1)
        machine.crash(seed)
        machine.teardown()


@pytest.mark.parametrize("lazy", [OsMachine], indirect=True)
def test_a_failed_sync_never_counts_as_synced(lazy: ChannelMachine) -> None:
    """``synced_sequence`` stays below what could not be synced."""
    lazy.put_and_commit(count=1, times=1)
    before = lazy.channel.synced_sequence
    lazy.disk.fail("sync", times=None)
    with pytest.raises(ChannelIOError):
        lazy.channel.sync()
    assert lazy.channel.synced_sequence == before
    lazy.heal()
    lazy.put_and_commit(count=1, times=1)
    lazy.channel.sync()
    assert lazy.channel.synced_sequence == before


@pytest.mark.parametrize("kind", [OsMachine, IntervalMachine])
@pytest.mark.parametrize("operations", range(0, 24, 2))
def test_no_segment_outlives_the_end_of_an_earlier_one(kind: type[ChannelMachine], operations: int) -> None:
    """A crash loses the end of the log, never something in its middle, over segments and crashes of the recovery."""
    for seed in range(5):
        machine = kind()
        machine.put(count=2, which=0)
        machine.put(count=1, which=1)
        machine.put_and_commit(count=1, times=2)
        machine.commit(which=0)
        machine.end_in_the_middle(opening=True, operations=operations, seeds=(seed, seed + 1))
        machine.teardown()


@both
def test_a_lost_sector_at_the_beginning_of_a_segment_ends_the_log(lazy: ChannelMachine) -> None:
    """Transactions behind lost sectors are lost as well, also if nothing is left of what stood before them."""
    lazy.end_in_the_middle(opening=False, operations=0, seeds=(0, 0))
    lazy.put_and_commit(count=1, times=1)
    lazy.put(count=3, which=0)
    lazy.fault(nth=1, number=5, operation="append", times=1, written=0)
    lazy.put_and_commit(count=1, times=1)
    lazy.put_and_commit(count=1, times=3)
    lazy.end_in_the_middle(opening=False, operations=0, seeds=(0, 0))


SITUATIONS = (
    *("crashes", "kills", "crashes while opening", "the power failed in an operation", "unsynced transactions lost"),
    *("rolls", "torn_tails", "segments deleted", "checkpoints", "checkpoint_fallbacks", "checkpoint_errors"),
    *("poisoned", "disk full", "io error", "channel full", "could not be opened", "too full to be opened"),
    *("a transaction in doubt had happened", "a transaction in doubt had not happened", "rollbacks of takes"),
    *("puts committed", "takes committed", "taken", "examples"),
    *(f"fault: {operation}" for operation in ("append", "sync", "rename", "unlink", "create", "sync_directory", "*")),
)


def test_every_situation_was_met() -> None:
    """The histories above reached what they are there for: rolls, torn ends, deletions, doubts, each kind of fault."""
    if SEEN["examples"] < EXAMPLES:  # this test was asked for alone
        for machine in (ChannelMachine, OsMachine, IntervalMachine):
            run_state_machine_as_test(machine, settings=_HISTORIES)
    missed = [situation for situation in SITUATIONS if not SEEN[situation]]
    assert not missed, f"never met: {missed}"
