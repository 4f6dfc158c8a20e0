"""Stateful test of the file channel on a simulated disk, compared with the model after every step.

The file is long because a state machine is one class with all its rules.
"""

import errno
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import get_ident
from typing import Any, ClassVar

from producer.channels.file.channel import _SYNC, FileChannel
from producer.channels.file.keeper import Keeper
from producer.channels.file.log.log import Log
from producer.channels.file.log.run import Run
from producer.channels.file.queue.file_transaction import FileTransaction
from producer.channels.file.store.format import encode_event
from producer.model.errors import ChannelError, ChannelFullError, ChannelIOError, DiskFullError, TransactionStateError
from producer.model.interfaces import Event, FileStats, Stored
from tests.channels.file.model import Entry, Model, event_of, number_of
from tests.support.histories import Machine, integers, lists, rule, sampled_from, sets
from tests.support.interleaving import Interleaving, TurnClock, locks_that_take_turns, point
from tests.support.sim_fs import Fault, SimFS

DIRECTORY = "/channel"
CAPACITY = 30
TRANSACTION_CAPACITY = 8
#: Disk operations that may fail.
OPERATIONS = (
    *("append", "sync", "rename", "unlink", "truncate", "sync_directory", "create", "open", "names", "allocate"),
    *("append", "sync", "read", "lock", "rewrite", "preallocate", "free", "*"),
)
#: Actions of concurrent threads.
CALLS = ("put", "put", "take", "roll back", "checkpoint", "sync")
SEEDS = integers(0, 1 << 32)
YES_OR_NO = sampled_from([False, True])

#: Counts of situations in all runs, so that a test can check that they occurred.
SEEN: Counter[str] = Counter()


class _Open:
    """An open transaction, with the model's knowledge of it."""

    def __init__(self, owner: int, transaction: FileTransaction) -> None:
        self.owner = owner
        self.transaction = transaction
        self.puts: list[int] = []
        self.takes: dict[int, Event] = {}


class _Beside:
    """One concurrent action of a thread."""

    def __init__(self, name: str, call: Callable[[], Any], each: _Open | None = None) -> None:
        self.name, self.each = name, each
        self._call = call
        self.thread = self.run = 0
        self.done = False

    def __call__(self) -> Any:
        self.thread = get_ident()
        return self._call()


@contextmanager
def _noting_runs(log: Log, calls: Sequence[_Beside]) -> Iterator[None]:
    """Record the log position of each call's commit."""

    def commit(run: Run) -> None:
        try:
            Log.commit(log, run)
        finally:
            for call in calls:
                if call.thread == get_ident():
                    call.run = run.number

    log.commit = commit  # type: ignore[method-assign]
    try:
        yield
    finally:
        del log.commit


class ChannelMachine(Machine):
    """State machine of the channel; subclasses choose the sync policy, mutations the disk.

    :cvar fsync: the channel's option.
    :cvar disk_type: the disk.
    """

    fsync: ClassVar[str | float] = "commit"
    disk_type: ClassVar[type[SimFS]] = SimFS

    def __init__(self) -> None:
        self._keeper_start = Keeper.start
        Keeper.start = lambda _keeper: None  # type: ignore[method-assign]  # the machine does its work: one thread
        self.clock = TurnClock()
        self.disk = self.disk_type()
        self.model = Model()
        self.open: list[_Open] = []
        self.aside: set[int] = set()  # events that could not be read three times
        self.numbers = self.owners = 0
        self.faults: list[Fault] = []
        self.seed = 0
        self.channel: FileChannel = self._opened()
        self._new_life()

    # -- the parts

    def _opened(self, disk: SimFS | None = None) -> FileChannel:
        disk = disk or self.disk
        disk.hook = point
        with locks_that_take_turns():
            return self._new_channel(disk)

    def _new_channel(self, disk: SimFS) -> FileChannel:
        return FileChannel(
            DIRECTORY,
            capacity=CAPACITY,
            transaction_capacity=TRANSACTION_CAPACITY,
            keep_alive=0,
            fsync=self.fsync,
            segment_size=4096,
            checkpoint_interval=None,
            minimum_free_space=1024,
            reserve=3000,
            clock=self.clock,
            disk=disk,  # type: ignore[arg-type]
        )

    def _new_life(self) -> None:
        self.open.clear()
        self.aside.clear()
        self.unread: Counter[int] = Counter()
        self.put_successes = self.take_successes = 0
        self.file_stats = self.channel.stats().file or FileStats()
        self.began_full = self.disk.capacity is not None

    @property
    def _struck(self) -> int:
        return sum(fault.met for fault in self.faults)

    def _try(self, call: Callable[[], Any]) -> tuple[bool, Any]:
        """Return True and the value of a call, or False and its error, which must have a reason."""
        before = self._struck
        try:
            return True, call()
        except ChannelIOError as error:
            if self.disk.capacity is None and not self.disk.dead and self._struck == before:
                raise AssertionError("an error without a cause") from error
            SEEN["disk full" if isinstance(error, DiskFullError) else "io error"] += 1
            return False, error

    def _revive(self) -> None:
        """Restart the machine if the power failed meanwhile."""
        if self.disk.dead:
            SEEN["the power failed in an operation"] += 1
            self._start_again(self.disk.crash(self.seed), machine_died=True)

    def _start_again(self, disk: SimFS, *, machine_died: bool) -> None:
        synced = self.channel.synced_sequence
        with suppress(ChannelError):
            self.channel.close()  # its disk is dead: this only ends its threads
        self._count_faults()
        self.disk = disk
        self._look(machine_died=machine_died, synced=synced)

    def _look(
        self, *, machine_died: bool, synced: int = -1, damaged: bool = False, opened_before: bool = False
    ) -> None:
        """Open the channel and compare its content with the model."""
        # On a full disk the channel only reads: damage that it found could not be noted, and is found again.
        noted = not self.began_full or self.channel._log._end.active is not None
        self._open_for_good()
        found = list(self.channel.peek())
        doubts = [entry for entry in self.model.history if entry.doubt]
        stats = self.channel.stats().file or FileStats()
        numbers = [number_of(event) for event in found]
        if machine_died and not self._on_disk:
            counted = stats.lost_events if noted and not opened_before else None
            lost = self.model.found_with_holes(numbers, synced_sequence=synced, counted=counted)
            SEEN["counted as lost behind a hole"] += stats.lost_events
        else:
            lost = self.model.found(numbers, machine_died=machine_died, synced_sequence=synced)
            assert not noted or stats.lost_events == 0, "the channel believes that it lost something"
            assert not noted or not stats.damaged_records, "the channel believes that something is damaged"
            assert not noted or not stats.quarantined, "the channel set something aside"
        SEEN["unsynced transactions lost"] += lost
        for entry in doubts:
            happened = set(entry.puts) <= set(self.model.visible) if entry.puts else entry.takes - {*self.model.visible}
            SEEN["a transaction in doubt had happened" if happened else "a transaction in doubt had not happened"] += 1
        for event in found:
            self._learn(event)
        assert stats.recovered == len(found), "the channel does not know what it has"
        assert damaged or not stats.checkpoint_fallbacks, "a whole checkpoint was refused"
        for name in ("torn_tails", "checkpoint_fallbacks", "damaged_records", "quarantined", "recovered"):
            SEEN[name] += getattr(stats, name)
        self._new_life()

    def _open_for_good(self) -> None:
        try:
            self.channel = self._opened()
        except ChannelIOError:
            if self.disk.capacity is None:
                raise
            SEEN["too full to be opened"] += 1
            assert self.disk.open_files == []
            self.disk.capacity = None
            self.channel = self._opened()
        SEEN["opened to be read"] += self.channel._log._end.active is None

    def _learn(self, event: Event) -> None:
        number = number_of(event)
        assert event.sequence is not None
        known = self.model.sequences.setdefault(number, event.sequence)
        assert known == event.sequence, f"event {number} had the sequence number {known}, now {event.sequence}"

    def _pick(self, which: int, *, takes: bool) -> _Open:
        """Return an open transaction of this kind, or a new one."""
        fitting = [each for each in self.open if not (each.puts if takes else each.takes)]
        if fitting and (which % 3 or len(self.open) >= 5):
            self.open.append(self.open.pop(self.open.index(fitting[which % len(fitting)])))
            return self.open[-1]
        return self._new_transaction()

    def _new_transaction(self) -> _Open:
        self.owners += 1
        made = _Open(self.owners, self.channel.transaction())
        made.transaction.begin()
        self.open.append(made)
        return made

    @property
    def _taken(self) -> set[int]:
        return {number for each in self.open for number in each.takes}

    @property
    def _queued(self) -> list[int]:
        taken = self._taken
        return [number for number in self.model.visible if number not in taken and number not in self.aside]

    @property
    def _on_disk(self) -> bool:
        return self.fsync == "commit"

    # -- transactions

    @rule(which=integers(0, 20), count=integers(1, 4))
    def put(self, which: int, count: int) -> None:
        each = self._pick(which, takes=False)
        if not each.takes:
            self._put_into(each, count)

    def _put_into(self, each: _Open, count: int) -> None:
        count = min(count, TRANSACTION_CAPACITY - len(each.puts))
        if not count:
            return
        numbers = range(self.numbers + 1, self.numbers + count + 1)
        self.numbers += count
        each.transaction.put_many([event_of(number) for number in numbers])
        each.puts += numbers

    @rule(which=integers(0, 20), count=integers(1, 6), max_bytes=sampled_from([None, None, 100, 4000]))
    def take(self, which: int, count: int, max_bytes: int | None) -> None:
        """Take events from the head, in order."""
        each = self._pick(which, takes=True)
        if not each.puts:
            self._take_into(each, count, max_bytes)
        self._revive()

    def _take_into(self, each: _Open, count: int, max_bytes: int | None) -> None:
        count = min(count, TRANSACTION_CAPACITY - len(each.takes))
        if not count:
            return
        struck, queued = self._struck, self._queued
        done, events = self._try(lambda: each.transaction.take(count, max_bytes=max_bytes))
        failed = self._struck > struck or self.disk.dead
        self._learn_aside(queued, failed=failed)
        if done:
            for event in events:
                self._learn(event)
                each.takes[number_of(event)] = event
            numbers = [number_of(event) for event in events]
            self._delivered(numbers, queued, count, whole=max_bytes is None and not failed)
        else:
            self._could_not_read(queued)

    def _learn_aside(self, queued: list[int], *, failed: bool) -> None:
        """Learn which unreadable events were set aside, if near the head after a disk failure."""
        sequences = set(self.channel._ledger._aside)
        aside = {number for number in self.model.visible if self.model.sequences[number] in sequences}
        assert len(aside) == len(sequences), "what is set aside is not in the channel"
        new = aside - self.aside
        assert failed or not new, "set aside though nothing failed"
        assert new <= {*queued}, "set aside though it was taken"
        SEEN["set aside as unreadable"] += len(new)
        self.aside = aside

    def _delivered(self, numbers: list[int], queued: list[int], count: int, *, whole: bool) -> None:
        expected = [number for number in queued if number not in self.aside][:count]
        assert numbers == expected[: len(numbers)], f"{numbers} came, the head is {expected}"
        assert bool(numbers) == bool(expected), "nothing came of a channel that is not empty"
        if whole:
            assert len(numbers) == len(expected)
        self.unread.clear()
        SEEN["taken"] += len(numbers)

    def _could_not_read(self, queued: list[int]) -> None:
        head = next(number for number in queued if number not in self.aside)
        self.unread[head] += 1
        assert self.unread[head] <= 2, f"event {head} holds up the others"

    @rule(count=integers(1, 4), times=integers(1, 3))
    def put_and_commit(self, count: int, times: int) -> None:
        """Commit consecutive transactions of puts."""
        for _ in range(times):
            self.put(0, count)
            self.commit(-1)

    @rule(count=integers(1, 6), times=integers(1, 2))
    def take_and_commit(self, count: int, times: int) -> None:
        """Commit consecutive transactions of takes."""
        for _ in range(times):
            self.take(0, count, None)
            if self.open:
                self.commit(-1)

    @rule(lambda self: self._taken, which=integers(0, 20), part=integers(0, 255))
    def acknowledge(self, which: int, part: int) -> None:
        """Acknowledge some takes of a transaction, which stays open."""
        having = [each for each in self.open if each.takes]
        each = having[which % len(having)]
        numbers = [number for place, number in enumerate(each.takes) if part >> place & 1]
        done, _ = self._try(lambda: each.transaction.acknowledge([each.takes[number] for number in numbers]))
        self._end_takes(each, numbers, done=done)
        self._revive()

    def _end_takes(self, each: _Open, numbers: list[int], *, done: bool) -> None:
        if not numbers:
            return
        if not done:
            self.model.doubt(each.owner, (), numbers)
            return
        self.take_successes += len(numbers)
        for number in numbers:
            del each.takes[number]
        self.model.commit(Entry(each.owner, takes=frozenset(numbers)), on_disk=self._on_disk)
        SEEN["takes committed"] += 1

    @rule(lambda self: self.open, which=integers(0, 20))
    def commit(self, which: int) -> None:
        """Commit a transaction; a failed one stays open."""
        each = self.open[which % len(self.open)]
        fits = len(self.model.visible) + len(each.puts) <= CAPACITY or not each.puts
        try:
            done, stored = self._try(each.transaction.commit)
        except ChannelFullError as error:
            if fits:
                raise AssertionError("refused, and there is room") from error
            SEEN["channel full"] += 1
            return
        assert fits or not done, "more events than the capacity"
        if each.puts:
            self._end_puts(each, done=done)
        else:
            self._end_takes(each, list(each.takes), done=done)
        if done:
            assert stored is (Stored.DISK if self._on_disk else Stored.CACHE)
            each.transaction.close()
            self.open.remove(each)
        self._revive()

    def _end_puts(self, each: _Open, *, done: bool) -> None:
        if not done:
            self.model.doubt(each.owner, each.puts, ())
            return
        last = each.transaction.last_sequence
        assert last is not None
        for place, number in enumerate(reversed(each.puts)):
            self.model.sequences[number] = last - place
        self.put_successes += len(each.puts)
        self.model.commit(Entry(each.owner, puts=tuple(each.puts)), on_disk=self._on_disk)
        SEEN["puts committed"] += 1

    @rule(lambda self: self.open, which=integers(0, 20))
    def roll_back(self, which: int) -> None:
        each = self.open.pop(which % len(self.open))
        self._try(each.transaction.rollback)
        each.transaction.close()
        SEEN["rollbacks of takes"] += bool(each.takes)
        self._revive()

    @rule(lambda self: any(each.takes for each in self.open))
    def mix(self) -> None:
        """Refuse puts in a transaction that takes."""
        each = next(each for each in self.open if each.takes)
        with suppress(TransactionStateError):
            each.transaction.put(event_of(0))
            raise AssertionError("a transaction of both kinds")

    # -- threads

    @rule(
        what=lists(sampled_from(CALLS), 2, 3),
        switches=sets(integers(1, 80), 4),
        fails=sampled_from([0, 0, 0, 1, 2, 3]),
        operations=sampled_from([None] * 20 + list(range(20))),
        seed=SEEDS,
    )
    def together(self, what: list[str], switches: set[int], fails: int, operations: int | None, seed: int) -> None:
        """Use the channel from several threads, perhaps with failing syncs or a crash."""
        self._heal()
        calls = [self._beginning(name) for name in what]
        if fails:
            self.fault("sync", 1, errno.EIO, fails, 0)
        if operations is not None:
            self.power_fails_soon(operations, seed)
        self._run_together(calls, switches)
        if not self.disk.dead:
            self._heal()
        self._revive()

    def _beginning(self, name: str) -> _Beside:
        if name == "sync":
            return _Beside(name, self.channel.sync)
        if name == "checkpoint":
            return _Beside(name, lambda: self.channel.checkpoint(force=True))
        each = self._new_transaction()
        if name == "put":
            self._put_into(each, 2)
        else:
            self._take_into(each, 2, None)
        return _Beside(name, each.transaction.rollback if name == "roll back" else each.transaction.commit, each)

    def _run_together(self, calls: list[_Beside], switches: set[int]) -> None:
        SEEN["threads"] += 1
        wanted = len(self.model.visible) + sum(len(call.each.puts) for call in calls if call.each)
        before = self._struck
        with _noting_runs(self.channel._log, calls):
            outcomes = Interleaving(switches).run(*calls)
        if any(call.name == "checkpoint" for call in calls):
            self.aside.clear()
        reason = self._struck > before or self.disk.dead
        for call, outcome in zip(calls, outcomes, strict=True):
            call.done, error = outcome.error is None, outcome.error
            full = isinstance(error, ChannelFullError) and wanted > CAPACITY
            if error is not None and not full and not (isinstance(error, ChannelIOError) and reason):
                raise AssertionError(f"{call.name}: an error without a cause") from error
            assert call.name != "checkpoint" or outcome.value or reason
            if full:
                call.name = "roll back"
                call.each.transaction.rollback()  # type: ignore[union-attr]
        self._ended_together(calls)

    def _ended_together(self, calls: list[_Beside]) -> None:
        """Apply successful commits in log order, then the failed ones as possible."""
        if any(call.name == "sync" and call.done for call in calls):
            self.model.synced()  # all earlier commits
        for call in sorted(calls, key=lambda call: (not call.done, call.run)):
            each = call.each
            if each is None:
                continue
            if call.name == "put":
                self._end_puts(each, done=call.done)
            elif call.name == "take":
                self._end_takes(each, list(each.takes), done=call.done)
            if call.done or call.name == "roll back":
                each.transaction.close()
                self.open.remove(each)

    # -- the channel

    @rule()
    def checkpoint(self) -> None:
        """Write a checkpoint if anything changed; it raises nothing."""
        before = self._struck
        written = self.channel.checkpoint(force=True)
        self.aside.clear()
        assert written or self._struck > before or self.disk.dead or self.disk.capacity is not None
        self._revive()

    @rule()
    def sync(self) -> None:
        """Sync all commits."""
        done, _ = self._try(self.channel.sync)
        if done:
            self.model.synced()
        self._revive()

    @rule(seconds=sampled_from([0.5, 2.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def close_and_open(self) -> None:
        """Close and reopen: nothing is lost, and open transactions are rolled back."""
        self._heal()
        self.channel.close()
        assert self.disk.open_files == []
        self.model.synced()
        self._look(machine_died=False)

    # -- faults

    @rule(how=sampled_from(["crash", "crash", "kill", "close"]), seed=SEEDS)
    def end(self, how: str, seed: int) -> None:
        """End the channel between two calls, and reopen it."""
        if how == "crash":
            self.crash(seed)
        elif how == "kill":
            self.kill()
        else:
            self.close_and_open()

    def crash(self, seed: int) -> None:
        SEEN["crashes"] += 1
        self._start_again(self.disk.crash(seed), machine_died=True)

    def kill(self) -> None:
        SEEN["kills"] += 1
        self._start_again(self.disk.kill(), machine_died=False)

    @rule(operations=integers(0, 12), seed=SEEDS)
    def power_fails_soon(self, operations: int, seed: int) -> None:
        """Fail the power in one of the next operations."""
        self.seed = seed
        self.disk.die_after(operations)

    @rule(what=sampled_from(["checkpoint", "put", "take"]), operations=integers(0, 15), seed=SEEDS)
    def crash_in(self, what: str, operations: int, seed: int) -> None:
        """Fail the power inside a checkpoint or a commit."""
        self._heal()
        self.power_fails_soon(operations, seed)
        self._do(what)
        if not self.disk.dead:
            self.disk.die_after(None)

    @rule(
        what=sampled_from(["checkpoint", "put", "put", "take"]),
        operation=sampled_from(["append", "sync", "sync", "sync_directory", "create", "rename", "unlink"]),
        times=integers(1, 2),
        more=sampled_from(["checkpoint", "put", "put", None]),
        crash=YES_OR_NO,
        seed=SEEDS,
    )
    def fail_in(self, what: str, operation: str, times: int, more: str | None, crash: bool, seed: int) -> None:
        """Fail an operation inside a checkpoint or a commit, perhaps followed by a crash."""
        self._heal()
        self.fault(operation, 1, errno.EIO, times, 0)
        self._do(what)
        self._heal()
        if more is not None:
            self._do(more)
        if crash:
            self.crash(seed)

    def _do(self, what: str | None) -> None:
        if what == "checkpoint":
            self.checkpoint()
        elif what == "put":
            self.put_and_commit(2, 1)
        else:
            self.take_and_commit(2, 1)

    @rule(opening=YES_OR_NO, operations=integers(0, 25), seeds=lists(SEEDS, 2, 2))
    def end_in_the_middle(self, opening: bool, operations: int, seeds: Sequence[int]) -> None:
        """Fail the power while the channel is opened or closed."""
        if opening:
            self.crash_and_crash_again(operations, seeds)
        else:
            self.crash_while_closing(operations, seeds[0])

    def crash_and_crash_again(self, operations: int, seeds: Sequence[int]) -> None:
        """Fail the power, and again while the channel is opened."""
        synced = self.channel.synced_sequence
        disk = self.disk.crash(seeds[0])
        with suppress(ChannelError):
            self.channel.close()
        disk.die_after(operations)
        try:
            self._opened(disk).close()
        except ChannelError:
            assert disk.dead or disk.capacity is not None
            SEEN["crashes while opening"] += 1
        self._count_faults()
        self.disk = disk.crash(seeds[1])
        self._look(machine_died=True, synced=synced, opened_before=True)

    def crash_while_closing(self, operations: int, seed: int) -> None:
        """Fail the power while the channel is closed, or right after it."""
        synced = self.channel.synced_sequence
        self.disk.die_after(operations)
        self._try(self.channel.close)
        synced = max(synced, self.channel.synced_sequence)
        self._count_faults()
        self.disk = self.disk.crash(seed)
        self._look(machine_died=True, synced=synced)

    @rule(operation=sampled_from(OPERATIONS), nth=integers(1, 4))
    def open_with_a_fault(self, operation: str, nth: int) -> None:
        """Fail an operation while the channel is opened: it raises or does not matter, and the next opening works."""
        if operation in ("sync", "*") and not self._on_disk:
            return  # the cache is lost then, which the next process cannot know
        self._heal()
        disk = self.disk.kill()
        with suppress(ChannelError):
            self.channel.close()
        fault = disk.fail(operation, nth)
        try:
            self._opened(disk).close()
        except ChannelIOError:
            assert fault.met
            SEEN["could not be opened"] += 1
        SEEN[f"fault: {fault.operation}"] += fault.met
        disk.heal()
        assert disk.open_files == []
        self.disk = disk
        self._look(machine_died=False)

    @rule(room=sampled_from([None, *range(0, 6000, 13)]))
    def disk_fills(self, room: int | None) -> None:
        """Change the free space left by other programs."""
        self.disk.capacity = None if room is None else self.disk.used + room

    @rule(
        operation=sampled_from(OPERATIONS),
        nth=integers(1, 4),
        number=sampled_from([errno.EIO, errno.ENOSPC]),
        times=sampled_from([1, 1, 2, None]),
        written=sampled_from([0, 0, 1, 40, 700]),
    )
    def fault(self, operation: str, nth: int, number: int, times: int | None, written: int) -> None:
        self.faults.append(self.disk.fail(operation, nth, number, times, written=written))

    @rule(nth=integers(1, 3), written=integers(1, 900))
    def short_write(self, nth: int, written: int) -> None:
        """Shorten a write."""
        self.faults.append(self.disk.fail("append", nth, None, written=written))

    @rule()
    def heal(self) -> None:
        self._heal()

    def _heal(self) -> None:
        self.disk.heal()
        self.disk.die_after(None)
        self.disk.capacity = None
        self._count_faults()

    def _count_faults(self) -> None:
        for fault in self.faults:
            SEEN[f"fault: {fault.operation}"] += fault.met
        self.faults = []

    @rule(
        copies=sampled_from([("checkpoint",), ("checkpoint.backup",), ("checkpoint", "checkpoint.backup")]),
        how=sampled_from(["gone", "empty", "flip"]),
    )
    def damage_checkpoints(self, copies: Sequence[str], how: str) -> None:
        """Lose or damage copies of the checkpoint while the channel is closed."""
        self._heal()
        disk = self.disk.kill()
        with suppress(ChannelError):
            self.channel.close()
        for copy in copies:
            self._damage(disk, f"{DIRECTORY}/{copy}", how)
        self.disk = disk
        self._look(machine_died=False, damaged=True)

    @staticmethod
    def _damage(disk: SimFS, path: str, how: str) -> None:
        if disk.exists(path):
            content = disk.content(path)
            if how == "gone":
                disk.unlink(path)
                disk.sync_directory(DIRECTORY)
            else:
                disk.put(path, b"" if how == "empty" else content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])

    # -- invariants

    def check(self) -> None:
        """Check that the channel's statistics agree with the model."""
        if self.disk.dead:
            return
        stats = self.channel.stats()
        assert stats.file is not None
        taken = self._taken | self.aside
        assert (stats.size, stats.taken) == (len(self.model.visible) - len(taken), len(taken))
        assert stats.bytes == sum(len(encode_event(event_of(number))) for number in self.model.visible)
        assert stats.fill == len(self.model.visible) / CAPACITY
        assert (stats.put_successes, stats.take_successes) == (self.put_successes, self.take_successes)
        assert stats.open
        self._note_progress(stats.file)

    def _note_progress(self, stats: FileStats) -> None:
        before = self.file_stats
        for name in ("rolls", "checkpoints", "poisoned", "checkpoint_errors", "checkpoint_backup_errors"):
            SEEN[name] += getattr(stats, name) - getattr(before, name)
        assert stats.lost_events == before.lost_events
        self.file_stats = stats

    def finish(self) -> None:
        """Check that everything can be taken once the faults end."""
        self._heal()
        self._finish()

    def give_back(self) -> None:
        Keeper.start = self._keeper_start  # type: ignore[method-assign]
        with suppress(ChannelError):
            self.channel.close()

    def teardown(self) -> None:
        """End a history written down by a test."""
        try:
            self.check()
            self.finish()
        finally:
            self.give_back()

    def _finish(self) -> None:
        self._revive()
        for each in self.open:
            each.transaction.rollback()
        self.open.clear()
        self.checkpoint()
        while self.model.visible:
            self.take(3, TRANSACTION_CAPACITY, None)
            self.commit(0)
            self._revive()
        self.check()
        self.checkpoint()
        self.checkpoint()
        SEEN["segments deleted"] += self.disk.count("unlink", "/log-")
        stats = self.channel.stats()
        assert (stats.size, stats.taken, stats.bytes, stats.fill) == (0, 0, 0, 0)
        self.close_and_open()
        assert self.model.visible == []
        assert len([name for name in self.disk.names(DIRECTORY) if name.startswith("log-")]) <= 3
        SEEN["examples"] += 1


class OsMachine(ChannelMachine):
    """State machine with ``fsync="os"``: a crash may lose the end of the log."""

    fsync = "os"
    sync_faults = 0


class IntervalMachine(ChannelMachine):
    """State machine with a sync interval: a crash may lose the end of the log."""

    fsync = 5.0

    @rule()
    def interval_ends(self) -> None:
        self.channel._keeper.do(_SYNC, self.channel)
        self._revive()
