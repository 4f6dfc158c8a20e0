"""MemoryChannel: events in the memory of the process, at full speed; they are lost with the process.

**Order.** A commit numbers its puts, and the queue is always sorted by these numbers. Takes leave at the head. A
rollback returns events to their places by number, so that any sequence of rollbacks restores the original order.

**Capacity** is taken at commit, for the net change of the transaction: puts less takes, in events and in bytes. The
events in use are those queued plus those taken, so that this count cannot drift; the bytes change together with them.
:mod:`.limits` defines the size of an event. A take releases the size that was counted at the put.

**Waiting** calls queue as described in :mod:`.turns`.

**Fork.** In a child the channel is empty and works. The parent keeps its events and transactions.

The file is long because it holds everything that one lock guards.
"""

from __future__ import annotations

import dataclasses
import itertools
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import Any

from ..model.errors import (
    ChannelClosedError,
    ChannelError,
    ChannelFullError,
    TransactionFullError,
)
from ..model.interfaces import ChannelStats, Event, Stored
from ..model.owned_lock import OwnedLock
from ..runtime.clock import Clock, SystemClock
from ..runtime.closing import Closing
from ..runtime.forks import Stage, watch_fork
from ..runtime.locks import Lock
from ..runtime.loggers import get_logger
from ..text.plural import counted
from .counters import ChannelCounters
from .limits import Limits, default_transaction_capacity, event_sizes, first_within
from .transaction import CLOSED, COMPLETED, OPEN, BaseTransaction, TransactionState
from .turns import Turns

_log = get_logger("loghub.channels.memory")

#: Default capacity, events. Flume's 100 is too small: commits fail as soon as a few batches are late.
CAPACITY = 100_000
#: Default, bytes, as a producer's ``total_size_in_bytes``. Flume uses 80 % of the Java heap; Python has no heap limit.
BYTE_CAPACITY = 100 * 1024 * 1024
#: Empty places before the head are removed when they are at least this many, and half of all.
_EMPTY_PLACES = 1024

#: Sequence number, size in bytes, the event as put, and the monotonic time of its commit.
_Entry = tuple[int, int, Event, float]

_numbers = itertools.count(1)


class MemoryTransaction(BaseTransaction):
    """A transaction of a memory channel; several threads may use it at once.

    One that is dropped while open is rolled back at the next use of its channel.

    :ivar epoch: number of forks that the channel had seen when it was made.
    :ivar ended: True if committed or rolled back; guarded, like the next one, by the channel's lock.
    :ivar committed: True if committed.
    """

    ended = True  # for __del__, if the constructor was interrupted

    def __init__(self, channel: MemoryChannel, epoch: int) -> None:
        self._channel_name, self._state_lock = channel._name, Lock()  # the base's constructor, inlined
        self._channel = channel
        self.epoch = epoch
        self.puts: list[Event] = []
        self.sizes: list[int] = []  # size of each put
        self.taken: dict[int, _Entry] = {}
        self.taken_bytes = 0
        self.ended = self.committed = False

    def end(self) -> None:
        """End it, and release what it holds."""
        self.ended = True
        self.puts, self.sizes, self.taken, self.taken_bytes = [], [], {}, 0

    @property
    def put_bytes(self) -> int:
        """Return the size of its puts."""
        return sum(self.sizes)

    @property
    def balance(self) -> tuple[int, int]:
        """Return the events and bytes that its commit adds to the channel: puts less takes."""
        return len(self.puts) - len(self.taken), self.put_bytes - self.taken_bytes

    def put(self, event: Event) -> None:
        if self.state is not OPEN:
            raise self._wrong_order("put")
        self._channel._put_one(self, event)

    def _do_put(self, events: Sequence[Event]) -> None:
        self._channel._put(self, events)

    def _do_take(self, count: int, max_bytes: int | None, timeout: float | None) -> list[Event]:
        return self._channel._take(self, count, max_bytes, timeout)

    def _do_acknowledge(self, events: Sequence[Event]) -> None:
        self._channel._acknowledge(self, events)

    def _do_give_back(self, events: Sequence[Event]) -> None:
        self._channel._give_back(self, events)

    def commit(self, timeout: float | None = None) -> Stored:
        if self._channel._commit_at_once(self, COMPLETED):
            return Stored.MEMORY
        return super().commit(timeout)

    def _commit_at_end(self) -> None:
        if not self._channel._commit_at_once(self, CLOSED):
            self.commit()

    def _do_commit(self, timeout: float | None) -> Stored:
        self._channel._commit(self, timeout)
        return Stored.MEMORY

    def rollback(self) -> None:
        """Undo the puts and takes; a commit that waits in another thread ends.

        :raises TransactionStateError: it was committed, for instance by another thread.
        """
        self._move(COMPLETED, "rollback")
        self._do_rollback()

    def _do_rollback(self) -> None:
        self._channel._rollback(self)

    def __del__(self) -> None:
        if not self.ended and self.taken:
            self._channel._orphan(self)


class MemoryChannel(Closing):
    """A channel in memory. Implements :class:`~producer.model.interfaces.Channel`.

    Pickling carries the configuration; the copy is empty.

    Example:

        >>> from loghub.channels import Event, MemoryChannel
        >>> channel = MemoryChannel(capacity=1000)
        >>> with channel.transaction() as transaction:
        ...     transaction.put(Event({}, b"hello"))
        >>> with channel.transaction() as transaction:
        ...     [event.body for event in transaction.take(10)]
        [b'hello']

    :param capacity: the number of events, queued and taken ones together.
    :param transaction_capacity: limit on the puts, or takes, of one transaction, at most ``capacity``; None for 10,000,
        or ``capacity`` if that is less. A ``take`` of more returns as many as the transaction can hold.
    :param byte_capacity: limit in bytes, counted as :mod:`.limits` says; None or 0 for no limit.
    :param byte_capacity_buffer_percentage: the share of ``byte_capacity`` for headers, 0 to 99.
    :param keep_alive: default wait in seconds, of a commit for capacity, a take for events and a resize for takes.
    :param admit_larger: True to admit a transaction larger than ``byte_capacity`` when the channel is empty, instead of
        refusing it.
    :param name: the name in messages and statistics; by default ``memory-`` and a number.
    :param clock: the source of time; the system's by default.
    :raises ConfigError: an option is invalid.
    """

    #: False: :meth:`close` loses the events.
    survives_close = False

    def __init__(
        self,
        capacity: int = CAPACITY,
        transaction_capacity: int | None = None,
        byte_capacity: int | None = BYTE_CAPACITY,
        byte_capacity_buffer_percentage: int = 20,
        keep_alive: float = 3.0,
        *,
        admit_larger: bool = False,
        name: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        if transaction_capacity is None:
            transaction_capacity = default_transaction_capacity(capacity)
        self._limits = Limits(
            capacity=capacity,
            transaction_capacity=transaction_capacity,
            byte_capacity=byte_capacity or None,
            byte_capacity_buffer_percentage=byte_capacity_buffer_percentage,
            keep_alive=keep_alive,
            admit_larger=admit_larger,
        )
        self._buffer_percentage = byte_capacity_buffer_percentage
        self._name = name or f"memory-{next(_numbers)}"
        self._clock = clock or SystemClock()
        self._first = 0
        self._closed = False
        self._epoch = 0
        self._start_empty()
        watch_fork(self, Stage.CHANNELS)

    def _start_empty(self) -> None:
        # Guards all mutable state, here and in the transactions; no waiting thread holds it.
        self._lock = OwnedLock()
        self._queue: list[Any] = []  # of _Entry; places before _head are empty
        self._head = 0
        self._taken = 0
        self._bytes = 0
        self._next = self._first
        self._counters = ChannelCounters(self._clock)
        self._turns = Turns(self._clock, self._lock, self._tidy)
        self._rooms, self._takers = self._turns.rooms, self._turns.takers
        self._orphans: deque[MemoryTransaction] = deque()  # dropped transactions; appended without the lock

    @property
    def name(self) -> str:
        """Return the name for messages and statistics."""
        return self._name

    @property
    def transaction_capacity(self) -> int:
        """Return the limit on the puts, or takes, of one transaction."""
        return self._limits.transaction_capacity

    @property
    def keep_alive(self) -> float:
        """Return the default wait in seconds."""
        return self._limits.keep_alive

    @property
    def synced_sequence(self) -> int:
        """Return -1: nothing is on a disk."""
        return -1

    def transaction(self) -> MemoryTransaction:
        """Return a new transaction.

        Example:

            >>> with channel.transaction() as transaction:
            ...     transaction.put(Event({}, b"hello"))

        :raises ChannelClosedError: the channel is closed.
        """
        if self._closed:
            self._check_open()
        return MemoryTransaction(self, self._epoch)

    def sync(self, timeout: float | None = None) -> None:  # noqa: ARG002  # the protocol's
        """Return at once: memory cannot be synced.

        Example:

            >>> channel.sync()

        :param timeout: ignored.
        :raises ChannelClosedError: the channel is closed.
        """
        self._check_open()

    def _number_from(self, first: int) -> None:
        """Number the next put at least ``first``."""
        with self._lock:
            self._first = first
            self._next = max(self._next, first)

    def resize(
        self,
        *,
        capacity: int | None = None,
        byte_capacity: int | None = None,
        transaction_capacity: int | None = None,
        keep_alive: float | None = None,
    ) -> bool:
        """Change limits while the channel is in use: all given ones, or none. No event is lost.

        If the channel holds more than the new limits allow, the call waits for takes, up to the new ``keep_alive``.
        Commits that need capacity meanwhile wait behind it.

        Example:

            >>> channel.resize(capacity=200_000)
            True

        :param capacity: the new limit on events; None leaves it unchanged.
        :param byte_capacity: the new limit in bytes, 0 for none; None leaves it unchanged.
        :param transaction_capacity: the new limit on the puts, or takes, of a transaction; None leaves it unchanged.
        :param keep_alive: the new default wait in seconds; None leaves it unchanged.
        :returns: False if the channel held too much for all that time: nothing was changed, and the log says why.
        :raises ConfigError: a value is invalid.
        :raises ChannelClosedError: the channel is closed.
        """
        given = {"capacity": capacity, "transaction_capacity": transaction_capacity, "keep_alive": keep_alive}
        changed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if byte_capacity is not None:
            changed["byte_capacity"] = byte_capacity or None
        limits = dataclasses.replace(self._limits, **changed)
        with self._lock:
            self._check_open()
        resized, held = False, (0, 0)

        def attempt() -> bool:
            nonlocal resized, held
            held = self._used, self._bytes
            if not self._closed and limits.hold(*held):
                self._limits, resized = limits, True
            return resized

        self._turns.perform(attempt, self._rooms, limits.keep_alive, queues=False)
        if not resized:
            self._check_open()
            self._log_not_resized(limits, *held)
        return resized

    def stats(self) -> ChannelStats:
        """Return what the channel holds and has done; in a child, since the fork.

        Example:

            >>> channel.stats().capacity
            100000
        """
        with self._lock:
            self._turns.serve()
            counters, size, limits = self._counters, self._size, self._limits
            return ChannelStats(
                name=self._name,
                open=not self._closed,
                size=size,
                taken=self._taken,
                capacity=limits.capacity,
                fill=self._used / limits.capacity,
                bytes=self._bytes,
                byte_capacity=limits.byte_capacity,
                put_attempts=counters.put_attempts,
                put_successes=counters.put_successes,
                take_attempts=counters.take_attempts,
                take_successes=counters.take_successes,
                put_errors=counters.put_errors,
                take_errors=counters.take_errors,
                put_rate=counters.put_rate.per_second(),
                take_rate=counters.take_rate.per_second(),
                oldest_event_age=self._clock.monotonic() - self._queue[self._head][3] if size else None,
                last_take_age=counters.last_take_age,
                waiting=self._turns.waiting,
            )

    def close(self) -> None:
        """Close the channel and discard its events. Waiting calls raise ChannelClosedError. May be called again.

        Open transactions only permit ``rollback`` and ``close`` then. The number of committed events lost is logged
        once.

        Example:

            >>> channel.close()
        """
        with self._lock:
            lost = self._used
            self._closed = True
            self._queue, self._head, self._taken, self._bytes = [], 0, 0, 0
            self._turns.dismiss()
        if lost:
            what = counted(lost, "event that was not taken: it is", "events that were not taken: they are")
            _log.warning("channel %s: closed with %s lost", self._name, what)

    def _renew_in_child(self) -> None:
        self._epoch += 1
        self._start_empty()

    def __reduce__(self) -> tuple[Any, ...]:
        limits = self._limits
        sizes = limits.capacity, limits.transaction_capacity, limits.byte_capacity
        return _restore, (*sizes, self._buffer_percentage, limits.keep_alive, limits.admit_larger, self._name)

    def __repr__(self) -> str:
        return f"<MemoryChannel {self._name}: {self._used} of {counted(self._limits.capacity, 'event')}>"

    # Called by transactions.

    def _put(self, transaction: MemoryTransaction, events: Sequence[Event]) -> None:
        sizes = event_sizes(events, self._buffer_percentage)
        with self._lock:
            self._check_usable(transaction, "put")
            self._counters.put_attempts += len(sizes)
            if len(transaction.puts) + len(sizes) > self._limits.transaction_capacity:
                raise TransactionFullError(self._name, "puts", self._limits.transaction_capacity)
            transaction.sizes += sizes
            transaction.puts += events

    def _put_one(self, transaction: MemoryTransaction, event: Event) -> None:
        """Put one event, faster than :meth:`_put`."""
        (size,) = event_sizes((event,), self._buffer_percentage)
        with self._lock:
            puts = transaction.puts
            if self._closed or transaction.ended or transaction.epoch != self._epoch:
                self._check_usable(transaction, "put")
            self._counters.put_attempts += 1
            if len(puts) >= self._limits.transaction_capacity:
                raise TransactionFullError(self._name, "puts", self._limits.transaction_capacity)
            transaction.sizes.append(size)
            puts.append(event)

    def _take(
        self, transaction: MemoryTransaction, count: int, max_bytes: int | None, timeout: float | None
    ) -> list[Event]:
        with self._lock:
            if self._orphans:
                self._turns.serve()
            if self._closed or transaction.ended or transaction.epoch != self._epoch:
                self._check_usable(transaction, "take")
            self._counters.take_attempts += 1
            self._check_not_full(transaction)
            entries = [] if self._takers else self._take_now(transaction, count, max_bytes)
        if not entries:
            entries = self._take_in_turn(transaction, count, max_bytes, timeout)
        if len(entries) == 1:
            sequence, _, event, _ = entries[0]
            return [Event(event.headers, event.body, sequence)]
        return [Event(event.headers, event.body, sequence) for sequence, _, event, _ in entries]

    def _take_in_turn(
        self, transaction: MemoryTransaction, count: int, max_bytes: int | None, timeout: float | None
    ) -> list[_Entry]:
        entries: list[_Entry] = []

        def attempt() -> bool:
            nonlocal entries
            entries = entries or self._take_now(transaction, count, max_bytes)
            return bool(entries) or transaction.ended or self._is_full(transaction)

        self._turns.perform(attempt, self._takers, self._limits.keep_alive if timeout is None else timeout)
        if not entries:  # the channel may be closed, or another thread ended or filled the transaction
            with self._lock:
                self._check_usable(transaction, "take")
                self._check_not_full(transaction)
        return entries

    def _check_not_full(self, transaction: MemoryTransaction) -> None:
        if self._is_full(transaction):
            raise TransactionFullError(self._name, "takes", self._limits.transaction_capacity)

    def _is_full(self, transaction: MemoryTransaction) -> bool:
        return len(transaction.taken) >= self._limits.transaction_capacity

    def _acknowledge(self, transaction: MemoryTransaction, events: Sequence[Event]) -> None:
        with self._lock:
            self._check_usable(transaction, "acknowledge")
            entries = self._find(transaction.taken, events)
            size = self._remove_taken(transaction, entries)
            self._taken -= len(entries)
            self._bytes -= size
            self._counters.committed(0, len(entries))
            self._turns.serve()

    def _give_back(self, transaction: MemoryTransaction, events: Sequence[Event]) -> None:
        with self._lock:
            self._check_usable(transaction, "give_back")
            known = {event.sequence for event in events}
            self._put_back(transaction, list(filter(lambda entry: entry[0] in known, transaction.taken.values())))
            self._turns.serve()

    def _find(self, taken: dict[int, _Entry], events: Sequence[Event]) -> list[_Entry]:
        """Return the entries of ``events``, each of which must be in ``taken`` and be named once."""
        sequences = {event.sequence for event in events if event.sequence is not None}
        if len(sequences) < len(events) or not sequences <= taken.keys():
            message = (
                f"acknowledge: of {counted(len(events), 'event')}, some were not taken in this transaction, were "
                "acknowledged before, or are in the list twice: none of them was acknowledged"
            )
            raise ChannelError(self._name, message)
        return [taken[sequence] for sequence in sequences]

    def _commit_at_once(self, transaction: MemoryTransaction, state: TransactionState) -> bool:
        """Commit, unless another call waits or there is no capacity; True if committed, in ``state`` then."""
        with self._lock:
            if self._orphans:
                self._turns.serve()
            if self._rooms or self._takers or self._closed or transaction.epoch != self._epoch:
                return False
            return transaction._ending is None and self._commit_now(transaction, state)

    def _commit(self, transaction: MemoryTransaction, timeout: float | None) -> None:
        def attempt() -> bool:
            done = self._commit_now(transaction, COMPLETED)
            return done or transaction.state is not OPEN or not self._limits.could_hold(*transaction.balance)

        with self._lock:
            self._check_epoch(transaction)
            events, size = transaction.balance
        started = self._clock.monotonic()
        wait = self._limits.keep_alive if timeout is None else timeout
        self._turns.perform(attempt, self._rooms, wait, queues=events > 0 or size > 0)
        if not transaction.committed:
            self._check_open()
            raise self._commit_error(transaction, self._clock.monotonic() - started)

    def _commit_error(self, transaction: MemoryTransaction, waited: float) -> ChannelError:
        with self._lock:
            if transaction.ended or transaction.state is not OPEN:  # ended by another thread
                return transaction._wrong_order("commit")
            self._counters.put_errors += 1
            wanted, wanted_bytes = transaction.balance
            return ChannelFullError(
                self._name,
                size=self._used,
                capacity=self._limits.capacity,
                used_bytes=self._bytes,
                byte_capacity=self._limits.byte_capacity,
                wanted=max(0, wanted),
                wanted_bytes=max(0, wanted_bytes),
                last_take_age=self._counters.last_take_age,
                waited=waited,
                never=not self._limits.could_hold(wanted, wanted_bytes),
            )

    def _rollback(self, transaction: MemoryTransaction) -> None:
        with self._lock:
            if transaction.ended:
                raise transaction._wrong_order("rollback")
            self._roll_back(transaction)
            self._turns.serve()

    def _orphan(self, transaction: MemoryTransaction) -> None:
        """Schedule a rollback. The garbage collector calls it at any point, even while this thread holds the lock."""
        self._orphans.append(transaction)
        self._turns.look_again()

    # Changes of the channel, all with the lock held.

    def _take_now(self, transaction: MemoryTransaction, count: int, max_bytes: int | None) -> list[_Entry]:
        if self._head >= _EMPTY_PLACES and 2 * self._head >= len(self._queue):
            self._queue, self._head = self._queue[self._head :], 0
        head, room = self._head, self._limits.transaction_capacity - len(transaction.taken)
        entries: list[_Entry] = self._queue[head : head + min(count, room)]
        if not entries or transaction.ended or self._closed:
            return []
        if max_bytes is not None and len(entries) > 1:
            del entries[first_within((len(entry[2].body) for entry in entries), max_bytes) :]
        number = len(entries)
        if number == 1:
            taken, size = {entries[0][0]: entries[0]}, entries[0][1]
        else:
            taken, size = {entry[0]: entry for entry in entries}, sum([entry[1] for entry in entries])
        transaction.taken |= taken
        transaction.taken_bytes += size
        self._queue[head : head + number] = [None] * number
        self._head = head + number
        self._taken += number
        self._counters.take_attempts += number - 1
        return entries

    def _commit_now(self, transaction: MemoryTransaction, state: TransactionState) -> bool:
        """Commit if there is capacity; True if committed."""
        if transaction.ended or transaction.state is not OPEN:  # another thread is rolling it back
            return False
        puts, takes, limits = len(transaction.puts), len(transaction.taken), self._limits
        size = transaction.put_bytes - transaction.taken_bytes
        if puts and not limits.allow(self._used, puts - takes, self._bytes, size):
            return False
        now, numbers = self._clock.monotonic(), range(self._next, self._next + puts)
        entries, counters = zip(numbers, transaction.sizes, transaction.puts, itertools.repeat(now)), self._counters
        transaction.end()
        # No call from here on: an interrupt would leave events uncounted, and a close waits for those that are counted.
        self._queue += entries
        self._next += puts
        self._taken -= takes
        self._bytes += size
        if puts:
            transaction._last_sequence = self._next - 1
        transaction.state, transaction.committed = state, True
        counters.put_successes += puts
        counters.take_successes += takes
        counters.measure(puts, takes, now)
        return True

    def _roll_back(self, transaction: MemoryTransaction) -> None:
        """Return its takes to the queue, unless a close or a fork has discarded them."""
        if transaction.epoch == self._epoch and not self._closed:
            self._put_back(transaction, list(transaction.taken.values()))
        transaction.end()

    def _put_back(self, transaction: MemoryTransaction, back: list[_Entry]) -> None:
        """Return some of its takes to their places by number."""
        if not back:
            return
        head, queue = self._head, self._queue
        end = bisect_left(queue, max(back), head)
        queue = [*sorted(back + queue[head:end]), *queue[end:]]
        self._remove_taken(transaction, back)
        self._queue, self._head = queue, 0
        self._taken -= len(back)

    @staticmethod
    def _remove_taken(transaction: MemoryTransaction, entries: list[_Entry]) -> int:
        """Remove entries from a transaction's takes; return their bytes."""
        gone, size = {entry[0] for entry in entries}, sum([entry[1] for entry in entries])
        left = {sequence: entry for sequence, entry in transaction.taken.items() if sequence not in gone}
        transaction.taken = left
        transaction.taken_bytes -= size
        return size

    def _tidy(self) -> None:
        """Roll back the transactions that were dropped while open."""
        while self._orphans:
            transaction = self._orphans[0]
            if not transaction.ended:
                self._roll_back(transaction)
            self._orphans.popleft()  # not before: after an interrupt the next call rolls it back

    def _log_not_resized(self, limits: Limits, events: int, size: int) -> None:
        _log.warning(
            "channel %s: not resized to capacity %d and byte_capacity %s: after %.3f s (keep_alive) it still held %s "
            "of %s. Take some, then resize again",
            self._name,
            limits.capacity,
            limits.byte_capacity or "without limit",
            limits.keep_alive,
            counted(events, "event"),
            counted(size, "byte"),
        )

    @property
    def _size(self) -> int:
        return len(self._queue) - self._head

    @property
    def _used(self) -> int:
        return self._size + self._taken

    # Checks.

    def _check_open(self) -> None:
        if self._closed:
            raise ChannelClosedError(self._name, "it is closed")

    def _check_epoch(self, transaction: MemoryTransaction) -> None:
        self._check_open()
        if transaction.epoch != self._epoch:
            message = "the transaction was begun before this process was forked and is the parent's: make a new one"
            raise ChannelClosedError(self._name, message)

    def _check_usable(self, transaction: MemoryTransaction, call: str) -> None:
        self._check_epoch(transaction)
        if transaction.ended:
            raise transaction._wrong_order(call)


def _restore(*arguments: Any) -> MemoryChannel:
    *limits, admit_larger, name = arguments
    return MemoryChannel(*limits, admit_larger=admit_larger, name=name)
