"""MemoryChannel: events in the memory of the process, at full speed; what it holds dies with the process.

**Order.** A commit numbers its puts; the queue is always sorted by these numbers. Takes leave at the head, and a
rollback puts them back where their numbers belong, so that any number of rollbacks, in any order, restores the first
order.

**Room** is taken at commit, for what the transaction adds in the balance: puts less takes, in events and in bytes. The
events in use are those queued and those taken, so that this number cannot drift; the bytes change in the same breath.
What an event counts for is said in :mod:`.limits`; it gives back what it counted for at its put.

**Waiting** is described in :mod:`.turns`, and so is why an interrupt leaves the channel whole: all that a change needs
is computed first, and the change, which only sets what is to be, may be made again.

**Fork.** In a child the channel is empty and works; the parent's events, and its transactions, stay the parent's.

The file is long because everything that one lock guards stands in it.
"""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from ..model.errors import (
    ChannelClosedError,
    ChannelError,
    ChannelFullError,
    TransactionFullError,
    TransactionStateError,
)
from ..model.interfaces import ChannelStats, Event, Stored
from ..runtime.clock import Clock, SystemClock
from ..runtime.forks import Stage, watch_fork
from ..runtime.loggers import get_logger
from ..text.plural import counted
from .counters import ChannelCounters
from .limits import Limits, check_integer, event_size, event_sizes, first_within
from .transaction import CLOSED, COMPLETED, OPEN, BaseTransaction, TransactionState
from .turns import Redo, Turn, Turns

_log = get_logger("producer.channels.memory")

#: Events. Flume's 100 is known to be too small: a few batches that are late, and commits fail.
CAPACITY = 100_000
#: Puts, and takes, of one transaction; as of Flume's file channel.
TRANSACTION_CAPACITY = 10_000
#: Bytes, as ``total_size_in_bytes`` of a producer. Flume takes 80 % of the Java heap, but Python's heap has no bound.
BYTE_CAPACITY = 100 * 1024 * 1024
#: The empty places before the head are removed when they are at least so many, and half of all.
_EMPTY_PLACES = 1024

#: Sequence number, bytes that it counts for, the event as it was put, and the monotonic time of its commit.
_Entry = tuple[int, int, Event, float]

_numbers = itertools.count(1)


class MemoryTransaction(BaseTransaction):
    """See :class:`~producer.model.interfaces.Transaction`; several threads may use one at once.

    One that is dropped while it is open is rolled back at the next use of its channel.

    :ivar epoch: how many forks the channel had seen at its beginning.
    :ivar ended: it was committed or rolled back; guarded, like what follows, by the channel's lock.
    :ivar committer: the thread that has committed it.
    """

    ended = True  # what a finalizer finds where the beginning was interrupted
    committer: int | None = None
    taken_bytes = 0

    def __init__(self, channel: MemoryChannel, epoch: int) -> None:
        self._channel_name, self._state_lock = channel._name, threading.Lock()  # as its base does, without the call
        self._channel = channel
        self.epoch = epoch
        self.ended = False
        self.puts: list[Event] = []
        self.sizes: list[int] = []  # what each of the puts counts for; more than these after an interrupt
        self.taken: dict[int, _Entry] = {}

    def empty(self) -> None:
        """It has ended, and holds nothing; may be called again."""
        self.puts, self.sizes, self.taken, self.taken_bytes = [], [], {}, 0
        self.ended = True

    @property
    def put_bytes(self) -> int:
        """What its puts count for."""
        return sum(self.sizes[: len(self.puts)])

    def put(self, event: Event) -> None:
        """See :class:`~producer.model.interfaces.Transaction`."""
        if self.state is not OPEN:
            raise self._wrong_order("put")
        self._channel._put_one(self, event)

    def put_many(self, events: Iterable[Event]) -> None:
        """See :class:`~producer.model.interfaces.Transaction`."""
        if isinstance(events, list | tuple) and len(events) == 1:
            self.put(events[0])
        else:
            super().put_many(events)

    def wrong_order(self, call: str) -> TransactionStateError:
        """The error of a call that came after the end."""
        return self._wrong_order(call)

    def _do_put(self, events: Sequence[Event]) -> None:
        self._channel._put(self, events)

    def _do_take(self, count: int, max_bytes: int | None, timeout: float | None) -> list[Event]:
        return self._channel._take(self, count, max_bytes, timeout)

    def _do_acknowledge(self, events: Sequence[Event]) -> None:
        self._channel._acknowledge(self, events)

    def _do_give_back(self, events: Sequence[Event]) -> None:
        self._channel._give_back(self, events)

    def commit(self, timeout: float | None = None) -> Stored:
        """See :class:`~producer.model.interfaces.Transaction`."""
        # Its state is changed afterwards: after an interrupt the commit may be called again, and says that it happened.
        at_once = self._ending is None and self.state is OPEN
        if at_once and self._channel._commit_at_once(self, OPEN):
            self._have_committed()
            return Stored.MEMORY
        return super().commit(timeout)

    def _commit_at_end(self) -> None:
        if self._ending is not None or not self._channel._commit_at_once(self, CLOSED):
            self.commit()

    def _do_commit(self, timeout: float | None) -> Stored:
        return self._channel._commit(self, timeout)

    def rollback(self) -> None:
        """See :class:`~producer.model.interfaces.Transaction`; it ends a commit that waits in another thread.

        :raises TransactionStateError: another thread was faster, and has committed.
        """
        self._move(COMPLETED, "rollback")
        self._do_rollback()
        if self.committer not in (None, threading.get_ident()):  # of this thread it was one that was interrupted
            raise TransactionStateError(self._channel_name, "rollback() after another thread committed the transaction")

    def _do_rollback(self) -> None:
        self._channel._rollback(self)

    def __del__(self) -> None:
        if not self.ended and self.taken:
            self._channel._orphan(self)


class MemoryChannel:
    """Events in a list, and the rules by which transactions change it; a :class:`~producer.model.interfaces.Channel`.

    Pickling carries the configuration; the copy is empty.

    :param capacity: events, queued and taken ones together.
    :param transaction_capacity: puts, and takes, that one transaction holds; at most ``capacity``. None is 10,000,
        or ``capacity`` if that is less. A ``take`` of more returns as many as the transaction can hold.
    :param byte_capacity: bytes, counted as :mod:`.limits` says; None or 0 for no limit.
    :param admit_larger: a transaction that puts more bytes than ``byte_capacity`` is let in when nothing else is there,
        and not refused.
    :param byte_capacity_buffer_percentage: the share of them that is set aside for headers, 0 to 99.
    :param keep_alive: seconds that a commit waits for room, a take for events and a resize for takes, unless the call
        says otherwise.
    :param name: for messages and statistics; by default ``memory-`` and a number.
    :param clock: the time; the system's by default.
    :raises ConfigError: a value out of range.
    """

    #: See :class:`~producer.model.interfaces.Channel`.
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
            check_integer("capacity", capacity, 1, what="events")
            transaction_capacity = min(TRANSACTION_CAPACITY, capacity)
        self._limits = Limits(capacity, transaction_capacity, byte_capacity or None, keep_alive, admit_larger)
        check_integer("byte_capacity_buffer_percentage", byte_capacity_buffer_percentage, 0, 99, "per cent")
        self._buffer_percentage = byte_capacity_buffer_percentage
        self._name = name or f"memory-{next(_numbers)}"
        self._clock = clock or SystemClock()
        self._first = 0
        self._closed = False
        self._epoch = 0
        self._start_empty()
        watch_fork(self, Stage.CHANNELS)

    def _start_empty(self) -> None:
        # Guards all that changes, here and in the transactions; not held while anybody waits.
        self._lock = threading.Lock()
        self._redo = Redo()
        self._queue: list[Any] = []  # of _Entry; the places before _head are empty
        self._head = 0
        self._taken = 0
        self._bytes = 0
        self._next = self._first
        self._counters = ChannelCounters(self._clock)
        self._turns = Turns(self._clock, self._lock, self._tidy)
        self._rooms, self._takers = self._turns.rooms, self._turns.takers
        self._own = Turn(lambda _turn: None)  # of whoever does at once what he wants; it is in no line
        self._orphans: deque[MemoryTransaction] = deque()  # appended to without the lock

    @property
    def name(self) -> str:
        """For messages and statistics."""
        return self._name

    @property
    def transaction_capacity(self) -> int:
        """Puts, and takes, that one transaction holds."""
        return self._limits.transaction_capacity

    @property
    def keep_alive(self) -> float:
        """Seconds that calls wait unless they say otherwise."""
        return self._limits.keep_alive

    @property
    def synced_sequence(self) -> int:
        """Always -1: nothing is on a disk."""
        return -1

    def transaction(self) -> MemoryTransaction:
        """A new transaction.

        :raises ChannelClosedError: the channel is closed.
        """
        if self._closed:
            self._must_be_open()
        return MemoryTransaction(self, self._epoch)

    def sync(self, timeout: float | None = None) -> None:  # noqa: ARG002  # the protocol's
        """Return at once: memory cannot be made any safer.

        :raises ChannelClosedError: the channel is closed.
        """
        self._must_be_open()

    def number_from(self, first: int) -> None:
        """Give the next put the sequence number ``first``, or the one that it would have had if that is higher."""
        with self._lock:
            self._redo.finish()
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
        """Change limits while the channel is in use: all that are given, or none. Nothing that is stored is lost.

        If more is stored than the new limits allow, it waits for takes, up to ``keep_alive`` (the new one); commits
        that come meanwhile and want room wait behind it.

        :param capacity: as in the constructor, and so are the others; None leaves a limit as it is.
        :param byte_capacity: 0 for no limit.
        :returns: False if too much was stored for all that time: nothing was changed, and the log says why.
        :raises ConfigError: a value out of range.
        :raises ChannelClosedError: the channel is closed.
        """
        old = self._limits
        limits = Limits(
            old.capacity if capacity is None else capacity,
            old.transaction_capacity if transaction_capacity is None else transaction_capacity,
            old.byte_capacity if byte_capacity is None else byte_capacity or None,
            old.keep_alive if keep_alive is None else keep_alive,
            old.admit_larger,
        )
        held: list[int] = []
        turn = Turn(lambda turn: self._attempt_resize(turn, limits, held), queues=False)
        self._turns.perform(turn, self._turns.rooms, limits.keep_alive, self._must_be_open)
        if not turn.done:
            self._must_be_open()
            self._say_not_resized(limits, *held)
        return turn.done

    def stats(self) -> ChannelStats:
        """What the channel holds and has done; in a child, since the fork."""
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
                waiting=len(self._turns.rooms),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up the channel and what it holds; who waits gets ChannelClosedError. May be called again.

        Of transactions still open only ``rollback`` and ``close`` can be called. How many committed events are lost is
        logged, once.
        """
        with self._lock:
            self._turns.serve()
            lost, garbage = self._used, self._queue

            def change() -> None:
                self._closed = True
                self._queue, self._head, self._taken, self._bytes = [], 0, 0, 0

            self._redo.do(change)
            self._turns.dismiss()
        del garbage
        if lost:
            what = counted(lost, "event that was not taken: it is", "events that were not taken: they are")
            _log.warning("channel %s: closed with %s lost", self._name, what)

    def renew_in_child(self) -> None:
        """See :class:`~producer.runtime.forks.Forkable`."""
        self._epoch += 1
        self._start_empty()

    def __reduce__(self) -> tuple[Any, ...]:
        limits = self._limits
        sizes = limits.capacity, limits.transaction_capacity, limits.byte_capacity
        return _restore, (*sizes, self._buffer_percentage, limits.keep_alive, limits.admit_larger, self._name)

    def __repr__(self) -> str:
        return f"<MemoryChannel {self._name}: {self._used} of {counted(self._limits.capacity, 'event')}>"

    # What transactions ask for.

    def _put(self, transaction: MemoryTransaction, events: Sequence[Event]) -> None:
        sizes = event_sizes(events, self._buffer_percentage)
        with self._lock:
            self._redo.finish()
            self._must_be_usable(transaction, "put")
            self._counters.put_attempts += len(sizes)
            before = len(transaction.puts)
            if before + len(sizes) > self._limits.transaction_capacity:
                raise TransactionFullError(self._name, "puts", self._limits.transaction_capacity)
            transaction.sizes[before:] = sizes
            transaction.puts += events

    def _put_one(self, transaction: MemoryTransaction, event: Event) -> None:
        size = event_size(event, self._buffer_percentage)
        with self._lock:
            if self._redo.noted is not None:
                self._redo.finish()
            puts = transaction.puts
            if self._closed or transaction.ended or transaction.epoch != self._epoch:
                self._must_be_usable(transaction, "put")
            self._counters.put_attempts += 1
            before = len(puts)
            if before >= self._limits.transaction_capacity:
                raise TransactionFullError(self._name, "puts", self._limits.transaction_capacity)
            transaction.sizes[before:] = (size,)
            puts.append(event)

    def _take(
        self, transaction: MemoryTransaction, count: int, max_bytes: int | None, timeout: float | None
    ) -> list[Event]:
        entries: list[_Entry] = []
        with self._lock:
            if self._redo.noted is not None or self._orphans:
                self._tidy()
            if not self._rooms and not self._takers and self._head < len(self._queue):  # nobody waits, or has to
                if self._closed or transaction.ended or transaction.epoch != self._epoch or transaction.taken:
                    self._must_hold_another(transaction)
                else:
                    self._counters.take_attempts += 1
                self._attempt_take(self._own, transaction, count, max_bytes, entries)
        if not entries:
            self._take_in_turn(transaction, count, max_bytes, timeout, entries)
        if len(entries) == 1:
            sequence, _, event, _ = entries[0]
            return [Event(event.headers, event.body, sequence)]
        return [Event(event.headers, event.body, sequence) for sequence, _, event, _ in entries]

    def _take_in_turn(
        self,
        transaction: MemoryTransaction,
        count: int,
        max_bytes: int | None,
        timeout: float | None,
        entries: list[_Entry],
    ) -> None:
        turn = Turn(lambda turn: self._attempt_take(turn, transaction, count, max_bytes, entries))
        wait = self._limits.keep_alive if timeout is None else timeout
        self._turns.perform(turn, self._turns.takers, wait, lambda: self._must_hold_another(transaction))
        if turn.over and not turn.done:  # closed, or ended or filled by another thread
            with self._lock:
                self._redo.finish()
                self._must_hold_another(transaction)

    def _must_hold_another(self, transaction: MemoryTransaction) -> None:
        if self._closed or transaction.ended or transaction.epoch != self._epoch:
            self._must_be_usable(transaction, "take")
        self._counters.take_attempts += 1
        if len(transaction.taken) >= self._limits.transaction_capacity:
            raise TransactionFullError(self._name, "takes", self._limits.transaction_capacity)

    def _acknowledge(self, transaction: MemoryTransaction, events: Sequence[Event]) -> None:
        with self._lock:
            self._redo.finish()
            self._must_be_usable(transaction, "acknowledge")
            counters = self._counters
            entries = self._find(transaction.taken, events)
            number, size = len(entries), sum(entry[1] for entry in entries)
            try:
                taken, used, taken_bytes = self._taken - number, self._bytes - size, transaction.taken_bytes - size
                successes = counters.take_successes + number

                def change() -> None:
                    for entry in entries:
                        transaction.taken.pop(entry[0], None)
                    transaction.taken_bytes = taken_bytes
                    self._taken, self._bytes = taken, used
                    counters.take_successes = successes

                self._redo.do(change)
                counters.rated(0, number)
            finally:
                self._turns.serve()

    def _give_back(self, transaction: MemoryTransaction, events: Sequence[Event]) -> None:
        with self._lock:
            self._redo.finish()
            self._must_be_usable(transaction, "give_back")
            known = {event.sequence for event in events if event.sequence in transaction.taken}
            back = sorted(entry for sequence, entry in transaction.taken.items() if sequence in known)
            left = {sequence: entry for sequence, entry in transaction.taken.items() if sequence not in known}
            number, size = len(back), sum(entry[1] for entry in back)
            try:
                merge, taken, taken_bytes = self._merging(back), self._taken - number, transaction.taken_bytes - size

                def change() -> None:
                    merge()
                    self._taken = taken
                    transaction.taken, transaction.taken_bytes = left, taken_bytes

                self._redo.do(change)
            finally:
                self._turns.serve()

    def _find(self, taken: dict[int, _Entry], events: Sequence[Event]) -> list[_Entry]:
        """What was taken for ``events``; each must be there, and be named once."""
        entries = [taken.get(event.sequence, _NOTHING) for event in events if event.sequence is not None]
        if len({entry[0] for entry in entries}) < len(events) or _NOTHING in entries:
            message = (
                f"acknowledge: of {counted(len(events), 'event')}, some were not taken in this transaction, were "
                "acknowledged before, or are in the list twice; none of them was acknowledged now"
            )
            raise ChannelError(self._name, message)
        return entries

    def _commit_at_once(self, transaction: MemoryTransaction, state: TransactionState) -> bool:
        """Commit if nobody waits for what it changes; whether it did. The transaction is in ``state`` then."""
        garbage: list[object] = []
        with self._lock:
            if self._redo.noted is not None or self._orphans:
                self._tidy()
            if transaction.ended or self._rooms or self._takers or self._closed or transaction.epoch != self._epoch:
                return False
            self._attempt_commit(self._own, transaction, garbage, state)
            return transaction.ended

    def _commit(self, transaction: MemoryTransaction, timeout: float | None) -> Stored:
        with self._lock:
            self._redo.finish()
            if transaction.committer is not None:  # it had happened when an interrupt ended the call
                return Stored.MEMORY
        garbage: list[object] = []
        turn = Turn(lambda turn: self._attempt_commit(turn, transaction, garbage))
        wait = self._limits.keep_alive if timeout is None else timeout
        started = self._clock.monotonic()
        self._turns.perform(turn, self._turns.rooms, wait, lambda: self._begin_commit(turn, transaction))
        if not turn.done:
            self._must_be_open()
            raise self._why_not(transaction, self._clock.monotonic() - started)
        return Stored.MEMORY

    def _begin_commit(self, turn: Turn, transaction: MemoryTransaction) -> None:
        self._must_be_of_now(transaction)
        more = len(transaction.puts) > len(transaction.taken)
        turn.queues = more or transaction.put_bytes > transaction.taken_bytes

    def _why_not(self, transaction: MemoryTransaction, waited: float) -> ChannelError:
        with self._lock:
            self._redo.finish()
            if transaction.ended or transaction.state is not OPEN:  # by another thread, meanwhile
                return transaction.wrong_order("commit")
            self._counters.put_errors += 1
            wanted = max(0, len(transaction.puts) - len(transaction.taken))
            wanted_bytes = max(0, transaction.put_bytes - transaction.taken_bytes)
            return ChannelFullError(
                self._name,
                size=self._used,
                capacity=self._limits.capacity,
                used_bytes=self._bytes,
                byte_capacity=self._limits.byte_capacity,
                wanted=wanted,
                wanted_bytes=wanted_bytes,
                last_take_age=self._counters.last_take_age,
                waited=waited,
                never=not self._limits.could_hold(wanted, wanted_bytes),
            )

    def _rollback(self, transaction: MemoryTransaction) -> None:
        garbage = transaction.puts
        with self._lock:
            self._redo.finish()
            try:
                self._roll_back(transaction)
            finally:
                self._turns.serve()
        del garbage

    def _orphan(self, transaction: MemoryTransaction) -> None:
        """Have it rolled back soon. Garbage is collected anywhere, also where this thread holds the lock."""
        self._orphans.append(transaction)
        self._turns.look_again()

    # What changes the channel; all with the lock.

    def _attempt_take(
        self,
        turn: Turn,
        transaction: MemoryTransaction,
        count: int,
        max_bytes: int | None,
        result: list[_Entry],
    ) -> None:
        head, room = self._head, self._limits.transaction_capacity - len(transaction.taken)
        if transaction.ended or room <= 0:
            turn.over = True
            return
        entries = self._queue[head : head + min(count, room)]
        if not entries:
            return
        number, size = len(entries), entries[0][1]
        if number > 1:
            if max_bytes is not None:
                del entries[first_within((len(entry[2].body) for entry in entries), max_bytes) :]
            number, size = len(entries), sum([entry[1] for entry in entries])
        attempts = self._counters.take_attempts + number - 1
        sums = head + number, self._taken + number, transaction.taken_bytes + size, attempts
        values = turn, transaction, head, entries, result, sums
        self._redo.noted = self._set_take, values  # as Redo.do, without the call
        self._set_take(*values)
        self._redo.noted = None
        if self._head >= _EMPTY_PLACES and 2 * self._head >= len(self._queue):
            self._remove_empty_places()

    def _set_take(
        self,
        turn: Turn,
        transaction: MemoryTransaction,
        head: int,
        entries: list[_Entry],
        result: list[_Entry],
        sums: tuple[int, int, int, int],
    ) -> None:
        """What a take changes; values, as of a commit."""
        if len(entries) == 1:
            transaction.taken[entries[0][0]] = entries[0]
        else:
            transaction.taken |= {entry[0]: entry for entry in entries}
        self._queue[head : sums[0]] = [None] * len(entries)
        self._head, self._taken, transaction.taken_bytes, self._counters.take_attempts = sums
        result[:] = entries
        turn.done = turn.over = True

    def _remove_empty_places(self) -> None:
        rest = self._queue[self._head :]

        def change() -> None:
            self._queue, self._head = rest, 0

        self._redo.do(change)

    def _attempt_commit(
        self,
        turn: Turn,
        transaction: MemoryTransaction,
        garbage: list[object],
        state: TransactionState = OPEN,
    ) -> None:
        puts, takes = len(transaction.puts), len(transaction.taken)
        if transaction.ended or transaction.state is not OPEN:  # another thread rolls it back
            turn.over = True
            return
        first, after, now = self._next, self._next + puts, self._clock.monotonic()
        if puts == 1:
            size = transaction.sizes[0]
            entries: list[_Entry] = [(first, size, transaction.puts[0], now)]
        elif not puts:
            size, entries = 0, []
        else:
            size = transaction.put_bytes
            entries = list(zip(range(first, after), transaction.sizes, transaction.puts, itertools.repeat(now)))
        size -= transaction.taken_bytes
        end, limits, counters = len(self._queue), self._limits, self._counters
        if puts and not limits.allow(end - self._head + self._taken, puts - takes, self._bytes, size):
            turn.over = not limits.could_hold(puts - takes, size)
            return
        # What goes is kept in the garbage until the lock is free: to destroy it may run anybody's code.
        garbage += (transaction.puts, transaction.taken)
        successes = counters.put_successes + puts, counters.take_successes + takes
        sums = after, self._taken - takes, self._bytes + size, *successes
        committer = transaction._ending or threading.get_ident()  # a turn may be done by any thread
        values = turn, transaction, state, committer, end, entries, sums
        self._redo.noted = self._set_commit, values  # as Redo.do, without the call
        self._set_commit(*values)
        self._redo.noted = None
        counters.rated(puts, takes, now)

    def _set_commit(
        self,
        turn: Turn,
        transaction: MemoryTransaction,
        state: TransactionState,
        committer: int,
        end: int,
        entries: list[_Entry],
        sums: tuple[int, int, int, int, int],
    ) -> None:
        """What a commit changes; values instead of a closure, which would cost as much as the change."""
        self._queue[end:] = entries
        counters = self._counters
        self._next, self._taken, self._bytes, counters.put_successes, counters.take_successes = sums
        transaction.puts, transaction.sizes, transaction.taken, transaction.taken_bytes = [], [], {}, 0  # as empty()
        transaction.ended, transaction.committer = True, committer
        if entries:
            transaction._last_sequence = sums[0] - 1
        if state is CLOSED:
            transaction.state = state
        turn.done = turn.over = True

    def _roll_back(self, transaction: MemoryTransaction) -> None:
        """Put its takes back, once. Those of before a close or a fork are gone."""
        of_now = transaction.epoch == self._epoch and not self._closed
        back = sorted(transaction.taken.values()) if of_now and not transaction.ended else []
        merge, taken = self._merging(back), self._taken - len(back)

        def change() -> None:
            merge()
            self._taken = taken
            transaction.empty()

        self._redo.do(change)

    def _merging(self, back: list[_Entry]) -> Callable[[], None]:
        """The change after which ``back``, which is sorted, is in the queue again."""
        head, queue = self._head, self._queue
        end = bisect_left(queue, back[-1], head) if back else head
        start, merged = max(0, head - len(back)), sorted(back + queue[head:end])
        if len(merged) != end - start:  # too few empty places: the rest moves, and is given anew
            merged += queue[end:]
            end = max(len(queue), start + len(merged))

        def change() -> None:
            queue[start:end] = merged
            self._head = start

        return change

    def _tidy(self) -> None:
        """Finish what was interrupted, and roll back what nobody can."""
        self._redo.finish()
        while self._orphans:
            self._roll_back(self._orphans[0])
            del self._orphans[0]

    def _attempt_resize(self, turn: Turn, limits: Limits, held: list[int]) -> None:
        held[:] = self._used, self._bytes
        if limits.hold(self._used, self._bytes):

            def change() -> None:
                self._limits = limits
                turn.done = turn.over = True

            self._redo.do(change)

    def _say_not_resized(self, limits: Limits, events: int, size: int) -> None:
        _log.warning(
            "channel %s: not resized to capacity %d and byte_capacity %s: after %.3f s (keep_alive) it still held %s "
            "of %s. Take them, and resize again",
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

    # Who may.

    def _must_be_open(self) -> None:
        if self._closed:
            raise ChannelClosedError(self._name, "it is closed")

    def _must_be_of_now(self, transaction: MemoryTransaction) -> None:
        self._must_be_open()
        if transaction.epoch != self._epoch:
            message = "the transaction was begun before this process was forked and is the parent's: make a new one"
            raise ChannelClosedError(self._name, message)

    def _must_be_usable(self, transaction: MemoryTransaction, call: str) -> None:
        self._must_be_of_now(transaction)
        if transaction.ended:
            raise transaction.wrong_order(call)


#: Stands for what was not found.
_NOTHING: _Entry = (-1, 0, Event(), 0.0)


def _restore(*arguments: Any) -> MemoryChannel:
    *limits, admit_larger, name = arguments
    return MemoryChannel(*limits, admit_larger=admit_larger, name=name)
