"""Random histories with crashes keep every promise of the file channel; those that once failed are kept below.

``PRODUCER_SOAK=1`` runs many more histories, different ones each time.
"""

import errno
import os
import time
from collections.abc import Iterator

import pytest

from producer.model.errors import ChannelIOError
from tests.channels.file.machine import SEEN, ChannelMachine, IntervalMachine, OsMachine
from tests.support.histories import run

SOAK = os.environ.get("PRODUCER_SOAK") == "1"
#: Histories of each machine, split into tests for parallel processes.
HISTORIES, PARTS = (10_000, 20) if SOAK else (500, 5)
STEPS = 40
FIRST = int(time.time()) * HISTORIES if SOAK else 0
MACHINES = {"commit": ChannelMachine, "os": OsMachine, "interval": IntervalMachine}


@pytest.mark.timeout(7200 if SOAK else 120)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("fsync", MACHINES)
def test_random_histories_keep_every_promise(fsync: str, part: int, request: pytest.FixtureRequest) -> None:
    """Random histories agree with the model for every sync policy."""
    if part % 2 == 0:
        request.getfixturevalue("read_back")
    each = HISTORIES // PARTS
    run(MACHINES[fsync], range(FIRST + part * each, FIRST + (part + 1) * each), STEPS)


# Failures found by these machines, minimised.


@pytest.fixture
def machine() -> Iterator[ChannelMachine]:
    yield from _machine(ChannelMachine)


@pytest.fixture
def lazy(request: pytest.FixtureRequest) -> Iterator[ChannelMachine]:
    """Build the machine with the policy that the test names."""
    yield from _machine(request.param)


def _machine(kind: type[ChannelMachine]) -> Iterator[ChannelMachine]:
    machine = kind()
    yield machine
    machine.teardown()


both = pytest.mark.parametrize("lazy", [OsMachine, IntervalMachine], indirect=True)


def test_a_checkpoints_segment_is_on_the_disk_before_it_even_if_empty(machine: ChannelMachine) -> None:
    """A checkpoint's segment is on the disk before it, even if empty."""
    machine.put_and_commit(count=3, times=2)
    machine.take_and_commit(count=1, times=1)
    machine.damage_checkpoints(copies=["checkpoint"], how="gone")
    machine.end_in_the_middle(opening=False, operations=0, seeds=(1, 0))


def test_a_torn_transaction_counts_as_no_loss(machine: ChannelMachine) -> None:
    """A torn transaction counts neither as lost nor as damaged."""
    machine.put_and_commit(count=1, times=2)
    machine.power_fails_soon(operations=4, seed=0)
    machine.put_and_commit(count=3, times=1)
    assert machine.channel.stats().file.damaged_records == 0  # type: ignore[union-attr]


def test_room_that_was_made_is_seen_at_once(machine: ChannelMachine) -> None:
    """Space freed on a full disk is used by the next put."""
    machine.put(count=1, which=0)
    machine.disk_fills(room=0)
    machine.checkpoint()
    machine.put(count=1, which=0)
    machine.put_and_commit(count=1, times=1)
    machine.disk_fills(room=None)
    machine.put_and_commit(count=1, times=2)


def test_events_that_cannot_be_read_stay_in_the_channel(machine: ChannelMachine) -> None:
    """Unreadable events stay, and are delivered once readable."""
    machine.put_and_commit(count=1, times=2)
    machine.fault(nth=1, number=5, operation="open", times=None, written=0)
    for _ in range(4):
        machine.take_and_commit(count=1, times=1)
    machine.heal()
    machine.checkpoint()
    machine.take_and_commit(count=2, times=1)
    assert machine.model.visible == []


def test_records_of_a_failed_commit_in_the_page_cache_are_cut_off(machine: ChannelMachine) -> None:
    """Records of a failed commit in the page cache are cut off."""
    machine.put(count=4, which=0)
    machine.disk.fail("sync", times=2)
    with pytest.raises(ChannelIOError):
        machine.open[0].transaction.commit()
    machine.model.doubt(1, machine.open[0].puts, ())
    machine.kill()
    assert machine.model.visible == []


@pytest.mark.parametrize("what", ["put", "take"])
def test_after_the_next_commit_no_crash_revives_a_failed_one(what: str) -> None:
    """After the next commit no crash revives a failed one."""
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


@both
def test_a_failed_sync_never_counts_as_synced(lazy: ChannelMachine) -> None:
    """``synced_sequence`` never covers records of a failed sync."""
    lazy.put_and_commit(count=1, times=1)
    before = lazy.channel.synced_sequence
    lazy.fault("sync", 1, errno.EIO, None, 0)
    for _ in range(2):
        with pytest.raises(ChannelIOError):
            lazy.channel.sync()
        assert lazy.channel.synced_sequence == before
    lazy.heal()
    lazy.put_and_commit(count=1, times=1)
    lazy.sync()
    assert lazy.channel.synced_sequence == before + 2
    lazy.crash(0)


@both
def test_sync_does_not_return_as_long_as_something_is_not_on_the_disk(lazy: ChannelMachine) -> None:
    """Events reported as synced survive a crash after failed syncs."""
    lazy.put_and_commit(count=1, times=1)
    lazy.together(what=["sync", "put", "sync"], switches=set(), fails=1, operations=1, seed=2168964428)


@both
def test_if_the_disk_neither_syncs_nor_reads_sync_and_commits_raise_and_nothing_is_lost(lazy: ChannelMachine) -> None:
    """If the disk neither syncs nor reads, sync() and commits raise, and nothing is lost."""
    lazy.put_and_commit(count=2, times=1)
    lazy.fault("sync", 1, errno.EIO, None, 0)
    lazy.fault("read", 1, errno.EIO, None, 0)
    for _ in range(3):
        with pytest.raises(ChannelIOError):
            lazy.channel.sync()
        lazy.put_and_commit(count=1, times=1)
    assert lazy.channel.synced_sequence < 1
    lazy.heal()
    lazy.sync()
    assert lazy.channel.synced_sequence >= 2
    lazy.crash(0)


@both
def test_a_commit_that_a_failed_sync_moves_before_it_is_seen_survives_a_crash(lazy: ChannelMachine) -> None:
    """A commit between its write and its publication gets its new place when another thread's sync fails."""
    lazy.together(what=["take", "sync", "put"], switches=set(), fails=0, operations=None, seed=0)
    lazy.together(what=["put", "put"], switches={3, 46}, fails=1, operations=None, seed=0)
    lazy.power_fails_soon(operations=8, seed=0)
    lazy.checkpoint()


@both
def test_what_was_taken_before_a_checkpoint_is_not_counted_as_lost_behind_it(lazy: ChannelMachine) -> None:
    """Damage that begins at a checkpoint counts no earlier event, such as a delivered one."""
    lazy.put_and_commit(count=2, times=1)
    lazy.sync()
    lazy.take_and_commit(count=3, times=1)
    lazy.fail_in(what="checkpoint", operation="append", times=1, more="put", crash=True, seed=0)


@both
def test_a_lost_take_is_reported_as_damage_once(lazy: ChannelMachine) -> None:
    """A replay without a checkpoint does not report again what an earlier one has found."""
    lazy.fail_in(what="put", operation="create", times=1, more="checkpoint", crash=True, seed=0)
    lazy.put_and_commit(count=4, times=3)
    lazy.put(count=3, which=0)
    lazy.together(what=["roll back", "put"], switches=set(), fails=0, operations=None, seed=0)
    lazy.put_and_commit(count=1, times=1)
    lazy.put_and_commit(count=3, times=2)
    lazy.fail_in(what="take", operation="create", times=1, more=None, crash=True, seed=845510862)
    lazy.damage_checkpoints(copies=("checkpoint", "checkpoint.backup"), how="gone")


@both
def test_an_opening_rewrites_cached_records_of_a_process_whose_syncs_failed(lazy: ChannelMachine) -> None:
    """An opening rewrites cached records of a process whose syncs failed."""
    for seed in range(5):
        lazy.put_and_commit(count=2, times=1)
        lazy.fault("sync", 1, errno.EIO, 3, 0)
        lazy.sync()
        lazy.heal()
        lazy.kill()
        lazy.crash(seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("what", ["put", "take"])
def test_a_commit_that_raised_does_not_come_back_after_a_later_commit_and_a_crash(what: str, seed: int) -> None:
    """A commit that raised does not come back after a later commit and a crash."""
    for failing in range(1 << 7):
        machine = ChannelMachine()
        machine.put_and_commit(count=1, times=3)
        for nth in range(7):
            if failing >> nth & 1:
                machine.fault("sync", nth + 1, errno.EIO, 1, 0)
        machine._do(what)
        machine._do(what)
        machine.heal()
        while machine.open:
            machine.roll_back(0)
        machine.put_and_commit(count=1, times=1)
        machine.crash(seed)
        machine.give_back()


def test_the_end_of_an_abandoned_segment_is_not_damage() -> None:
    """The end of an abandoned segment is not damage."""
    for seed in range(60):
        machine = ChannelMachine()
        machine.put_and_commit(count=2, times=1)
        machine.fault("sync", 1, errno.EIO, 1, 0)
        machine.put_and_commit(count=2, times=1)
        machine.heal()
        machine.put_and_commit(count=2, times=1)
        machine.crash(seed)
        machine.teardown()


@pytest.mark.parametrize("kind", [ChannelMachine, OsMachine, IntervalMachine])
@pytest.mark.parametrize("written", [1, 40, 700])
@pytest.mark.parametrize("number", [None, errno.EIO], ids=["short", "failed"])
def test_sectors_of_a_partial_write_are_not_damage(
    kind: type[ChannelMachine], written: int, number: int | None
) -> None:
    """Sectors of a partial write are not damage."""
    for seed in range(50):
        machine = kind()
        machine.put_and_commit(count=3, times=1)
        machine.faults.append(machine.disk.fail("append", 1, number, written=written))
        if number is not None:
            machine.put_and_commit(count=1, times=1)
            machine.roll_back(0)
        machine.numbers = 9  # another size, which fits into the segment
        machine.put(count=1, which=0)
        machine.power_fails_soon(operations=1 + (number is None), seed=seed)
        machine.commit(-1)
        if not machine.disk.dead:
            machine.crash(seed)
        machine.teardown()


def test_a_partial_write_after_a_segment_header_is_not_damage_with_fsync_os() -> None:
    """A partial write after a segment header is not damage, with fsync "os"."""
    machine = OsMachine()
    machine.put_and_commit(count=4, times=1)
    machine.short_write(nth=2, written=1)
    machine.put_and_commit(count=1, times=1)
    machine.crash(3387542540)
    machine.teardown()


def test_a_partial_write_before_a_crash_is_not_damage_with_fsync_commit(machine: ChannelMachine) -> None:
    """A partial write before a crash is not damage, with fsync "commit"."""
    machine.put_and_commit(count=1, times=1)
    machine.end_in_the_middle(opening=True, operations=21, seeds=[0, 0])
    machine.put(count=3, which=0)
    machine.put_and_commit(count=3, times=2)
    machine.together(fails=0, operations=None, seed=0, switches=set(), what=["put", "put"])
    machine.open_with_a_fault(nth=1, operation="append")
    machine.take_and_commit(count=5, times=2)
    machine.power_fails_soon(operations=2, seed=893250484)
    machine.short_write(nth=1, written=1)
    machine.put_and_commit(count=2, times=1)


@pytest.mark.parametrize("kind", [OsMachine, IntervalMachine])
@pytest.mark.parametrize("operations", range(0, 24, 2))
def test_no_segment_outlives_the_end_of_an_earlier_one(kind: type[ChannelMachine], operations: int) -> None:
    """A crash loses the end of the log, never its middle."""
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
    """Transactions after lost sectors at a segment's start are dropped, too."""
    lazy.end_in_the_middle(opening=False, operations=0, seeds=(0, 0))
    lazy.put_and_commit(count=1, times=1)
    lazy.put(count=3, which=0)
    lazy.fault(nth=1, number=5, operation="append", times=1, written=0)
    lazy.put_and_commit(count=1, times=1)
    lazy.put_and_commit(count=1, times=3)
    lazy.end_in_the_middle(opening=False, operations=0, seeds=(0, 0))


@pytest.mark.parametrize("kind", [ChannelMachine, OsMachine, IntervalMachine])
@pytest.mark.parametrize("at", range(1, 31))
def test_a_checkpoint_during_puts_fits_the_log_after_a_crash(kind: type[ChannelMachine], at: int) -> None:
    """A checkpoint during puts fits the log after a crash."""
    for seed in range(4):
        machine = kind()
        machine.put_and_commit(count=2, times=2)
        machine.take_and_commit(count=2, times=1)
        machine.sync()
        what = ["checkpoint", "put"]
        machine.together(what=what, switches={at, at + 3}, fails=0, operations=None, seed=0)
        machine.crash(seed)
        machine.teardown()


SITUATIONS = (
    *("crashes", "kills", "crashes while opening", "the power failed in an operation", "unsynced transactions lost"),
    *("rolls", "torn_tails", "segments deleted", "checkpoints", "checkpoint_fallbacks", "checkpoint_errors"),
    *(
        "poisoned",
        "disk full",
        "io error",
        "channel full",
        "could not be opened",
        "opened to be read",
        "counted as lost behind a hole",
    ),
    *("a transaction in doubt had happened", "a transaction in doubt had not happened", "rollbacks of takes"),
    *("puts committed", "takes committed", "taken", "threads", "examples"),
    *(f"fault: {operation}" for operation in ("append", "sync", "rename", "unlink", "create", "sync_directory", "*")),
)


def test_every_situation_was_met() -> None:
    """The histories reach every kind of situation and fault."""
    # Other processes have played the rest: some of each kind first, then the others.
    for seed in sorted(range(HISTORIES), key=lambda seed: seed % 10):
        for machine in MACHINES.values():
            if all(SEEN[situation] for situation in SITUATIONS):
                return
            run(machine, [seed], STEPS)
    missed = [situation for situation in SITUATIONS if not SEEN[situation]]
    assert not missed, f"never met: {missed}"
