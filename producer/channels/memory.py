"""MemoryChannel: events in the memory of the process, at full speed; what it holds dies with the process.

**Order.** A commit numbers its puts; the queue is always sorted by these numbers. Takes leave at the head, and a
rollback puts them back where their numbers belong, so that any number of rollbacks, in any order, restores the first
order.

**Room** is taken at commit, for what the transaction adds in the balance: puts less takes, in events and in bytes. The
events in use are those queued and those taken, so that this number cannot drift; the bytes change in the same breath.

**Turns.** Who has to wait, for room or for events, stands in line. Whoever changes the channel serves the lines, and
does for those in front what they wait for: a waiting commit is completed, and a waiting take is given its events, by
another thread. So nobody who comes later can be faster, and no wakeup can be lost: between two calls, nobody waits for
something that is there.

**Interrupts.** A signal handler may raise on the main thread, but CPython runs it only after a call, where a function
begins, and at a jump backwards. The statements that change the channel stand together without any of these, under a
comment "At once"; everything that they need is computed before. What is interrupted has happened wholly or not at all.

**Bytes.** An event counts for its headers and its body, in UTF-8 and without Python's overhead, and for no less than
its body and the share of ``byte_capacity_buffer_percentage`` that is set aside for headers: with 20 %, bodies alone
fill at most 80 % of ``byte_capacity``. What it counted for at its put is what it gives back.

**Fork.** In a child the channel is empty and works; the parent's events, and its transactions, stay the parent's.

The file is long since everything that one lock guards stands in it.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import threading
import weakref
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from queue import SimpleQueue
from typing import Any

from ..clock import Clock, Deadline, SystemClock
from ..errors import (
    ChannelClosedError,
    ChannelError,
    ChannelFullError,
    ConfigError,
    InvalidArgumentError,
    TransactionFullError,
    TransactionStateError,
)
from ..interfaces import ChannelStats, Event, Stored
from .counters import ChannelCounters
from .transaction import BaseTransaction

_log = logging.getLogger("producer.channels.memory")

#: Events; Flume's 100 is known to be too small for any load.
CAPACITY = 100_000
#: Puts, and takes, of one transaction; as of Flume's file channel.
TRANSACTION_CAPACITY = 10_000
#: Bytes, as ``total_size_in_bytes`` of a producer; Flume takes 80 % of the Java heap, but Python's memory has no bound.
BYTE_CAPACITY = 100 * 1024 * 1024
#: Taken places at the head of the queue are removed when they are this many, and half of it.
_COMPACT = 1024

#: Sequence number, bytes that it counts for, the event as it was put, and the monotonic time of its commit.
_Entry = tuple[int, int, Event, float]

_numbers = itertools.count(1)
_channels: weakref.WeakSet[MemoryChannel] = weakref.WeakSet()


class _Turn:
    """What somebody wants, now or as soon as it is possible.

    :ivar attempt: does it if it is possible; called with the channel's lock held.
    :ivar over: nothing is left to wait for: it was done, or never can be.
    :ivar done: it was done.
    :ivar entries: what was taken.
    :ivar garbage: what is given up; it outlives the lock, for its destruction may run anybody's code.
    """

    __slots__ = ("attempt", "done", "entries", "garbage", "over", "wake")

    def __init__(self, attempt: Callable[[_Turn], None]) -> None:
        self.attempt = attempt
        self.over = self.done = False
        self.entries: list[_Entry] = []
        self.garbage: object = None
        self.wake: SimpleQueue[None] = SimpleQueue()


class MemoryTransaction(BaseTransaction):
    """See :class:`~producer.interfaces.Transaction`; several threads may use it at once.

    One that is dropped while it is open is rolled back at the next use of its channel.

    :ivar ended: it was committed or rolled back; guarded, as all below, by the channel's lock.
    """

    def __init__(self, channel: MemoryChannel, epoch: int) -> None:
        super().__init__(channel.name)
        self._channel = channel
        self.epoch = epoch
        self.ended = False
        self.puts: list[Event] = []
        self.put_sizes: list[int] = []
        self.put_bytes = 0
        self.taken: dict[int, _Entry] = {}
        self.taken_bytes = 0
        self.last: int | None = None

    @property
    def last_sequence(self) -> int | None:
        """See :class:`~producer.interfaces.Transaction`."""
        return self.last

    def wrong_order(self, call: str) -> TransactionStateError:
        """The error of a call that came after the end."""
        return self._wrong_order(call)

    def _do_put(self, events: Sequence[Event]) -> None:
        self._channel._put(self, events)

    def _do_take(self, count: int, max_bytes: int | None, timeout: float | None) -> list[Event]:
        return self._channel._take(self, count, max_bytes, timeout)

    def _do_acknowledge(self, events: Sequence[Event]) -> None:
        self._channel._acknowledge(self, events)

    def _do_commit(self, timeout: float | None) -> Stored:
        return self._channel._commit(self, timeout)

    def _do_rollback(self) -> None:
        self._channel._rollback(self)

    def __del__(self) -> None:
        if not getattr(self, "ended", True) and self.taken:
            self._channel._orphan(self)


class MemoryChannel:
    """See the module, and :class:`~producer.interfaces.Channel`.

    Pickling carries the configuration; the copy is empty.

    :param capacity: events, queued and taken ones together.
    :param transaction_capacity: puts, and takes, that one transaction holds; at most ``capacity``.
    :param byte_capacity: bytes, counted as the module says; None or 0 for no limit.
    :param byte_capacity_buffer_percentage: the share of them set aside for headers, 0 to 99.
    :param keep_alive: seconds that a commit waits for room, a take for events and a resize for less of them, unless
        the call says otherwise.
    :param name: for messages and statistics; ``memory-N`` by default.
    :param clock: the time; the system's by default.
    :raises ConfigError: a value out of range.
    """

    def __init__(
        self,
        capacity: int = CAPACITY,
        transaction_capacity: int = TRANSACTION_CAPACITY,
        byte_capacity: int | None = BYTE_CAPACITY,
        byte_capacity_buffer_percentage: int = 20,
        keep_alive: float = 3.0,
        *,
        name: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        _check_limits(capacity, transaction_capacity, byte_capacity, keep_alive)
        if not _is_integer(byte_capacity_buffer_percentage, 0, 99):
            rule = "an integer from 0 to 99"
            raise ConfigError("byte_capacity_buffer_percentage", rule, byte_capacity_buffer_percentage)
        self._name = name or f"memory-{next(_numbers)}"
        self._clock = clock or SystemClock()
        self._buffer_percentage = byte_capacity_buffer_percentage
        self._capacity, self._transaction_capacity = capacity, transaction_capacity
        self._byte_capacity = byte_capacity or None
        self._keep_alive = keep_alive
        self._closed = False
        self._epoch = 0
        self._empty()
        _channels.add(self)

    def _empty(self) -> None:
        # Guards all that changes, here and in the transactions; never held while anybody waits.
        self._lock = threading.Lock()
        self._queue: list[_Entry | Any] = []  # places before _head are empty
        self._head = 0
        self._taken = 0
        self._bytes = 0
        self._next = 0  # the next sequence number
        self._rooms: deque[_Turn] = deque()  # who waits for room
        self._takers: deque[_Turn] = deque()  # who waits for events; empty unless the queue is
        self._orphans: deque[MemoryTransaction] = deque()  # dropped while open; appended to without the lock
        self._counters = ChannelCounters(self._clock)

    @property
    def name(self) -> str:
        """For messages and statistics."""
        return self._name

    @property
    def synced_sequence(self) -> int:
        """Always -1: nothing is on a disk."""
        return -1

    def transaction(self) -> MemoryTransaction:
        """A new transaction.

        :raises ChannelClosedError: the channel is closed.
        """
        self._must_be_open()
        return MemoryTransaction(self, self._epoch)

    def sync(self, timeout: float | None = None) -> None:  # noqa: ARG002  # the protocol's
        """Return at once: memory is as safe as it can be made.

        :raises ChannelClosedError: the channel is closed.
        """
        self._must_be_open()

    def resize(
        self,
        *,
        capacity: int | None = None,
        byte_capacity: int | None = None,
        transaction_capacity: int | None = None,
        keep_alive: float | None = None,
    ) -> bool:
        """Change limits while the channel is in use; all or none of them. What is stored is never lost.

        If more is stored than the new limits allow, it waits for takes, up to ``keep_alive``; commits that come
        meanwhile wait behind it.

        :param capacity: as in the constructor, as are the others; None leaves a limit as it is.
        :param byte_capacity: 0 for no limit.
        :returns: False if there was too much in the channel for all that time; nothing was changed.
        :raises ConfigError: a value out of range.
        :raises ChannelClosedError: the channel is closed.
        """
        events = self._capacity if capacity is None else capacity
        size = self._byte_capacity if byte_capacity is None else byte_capacity
        each = self._transaction_capacity if transaction_capacity is None else transaction_capacity
        wait = self._keep_alive if keep_alive is None else keep_alive
        _check_limits(events, each, size, wait)

        def attempt(turn: _Turn) -> None:
            if self._used <= events and (not size or self._bytes <= size):
                # At once.
                self._capacity, self._byte_capacity = events, size or None
                self._transaction_capacity, self._keep_alive = each, wait
                turn.over = turn.done = True

        turn = _Turn(attempt)
        self._perform(turn, self._rooms, wait, self._must_be_open)
        if not turn.done:
            _log.warning(
                "channel %s: not resized to capacity %d, byte_capacity %s: after %.3f s (keep_alive) it still holds %d "
                "events of %d bytes. Take them, and resize again",
                *(self._name, events, size or "without limit", wait, self._used, self._bytes),
            )
        return turn.done

    def stats(self) -> ChannelStats:
        """What the channel holds and has done; since the fork, in a child."""
        with self._lock:
            self._serve()
            counters, size = self._counters, self._size
            return ChannelStats(
                name=self._name,
                open=not self._closed,
                size=size,
                taken=self._taken,
                capacity=self._capacity,
                fill=self._used / self._capacity,
                bytes=self._bytes,
                byte_capacity=self._byte_capacity,
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
                waiting=len(self._rooms),
            )

    def close(self) -> None:
        """Give up the channel and what it holds; who waits gets ChannelClosedError. May be called again.

        How many committed events are lost with it is logged, once.
        """
        with self._lock:
            lost, garbage = self._used, self._queue
            # At once.
            self._closed = True
            self._queue, self._head, self._taken, self._bytes = [], 0, 0, 0
            for line in (self._rooms, self._takers):
                while line:
                    line[0].wake.put(None)
                    del line[0]
        del garbage
        if lost:
            _log.warning("channel %s: closed with %d events that nobody had taken: they are lost", self._name, lost)

    def __reduce__(self) -> tuple[Any, ...]:
        limits = self._capacity, self._transaction_capacity, self._byte_capacity
        return _restore, (*limits, self._buffer_percentage, self._keep_alive, self._name)

    def __repr__(self) -> str:
        return f"<MemoryChannel {self._name}: {self._used} of {self._capacity} events>"

    # What transactions ask for.

    def _put(self, transaction: MemoryTransaction, events: Sequence[Event]) -> None:
        sizes = _sizes(events, self._buffer_percentage)
        count, total = len(sizes), sum(sizes)
        with self._lock:
            self._must_be_usable(transaction, "put")
            self._counters.put_attempts += count
            if len(transaction.puts) + count > self._transaction_capacity:
                raise TransactionFullError(self._name, "puts", self._transaction_capacity)
            # At once.
            transaction.puts += events
            transaction.put_sizes += sizes
            transaction.put_bytes += total

    def _take(
        self, transaction: MemoryTransaction, count: int, max_bytes: int | None, timeout: float | None
    ) -> list[Event]:
        def check() -> None:
            self._must_be_usable(transaction, "take")
            self._counters.take_attempts += 1
            if len(transaction.taken) >= self._transaction_capacity:
                raise TransactionFullError(self._name, "takes", self._transaction_capacity)

        turn = _Turn(lambda turn: self._attempt_take(turn, transaction, count, max_bytes))
        self._perform(turn, self._takers, self._keep_alive if timeout is None else timeout, check)
        if turn.over and not turn.done:
            raise transaction.wrong_order("take")
        return [Event(event.headers, event.body, sequence) for sequence, _, event, _ in turn.entries]

    def _acknowledge(self, transaction: MemoryTransaction, events: Sequence[Event]) -> None:
        with self._lock:
            self._must_be_usable(transaction, "acknowledge")
            taken, counters = transaction.taken, self._counters
            entries = {event.sequence: taken.get(event.sequence) for event in events}  # type: ignore[arg-type]
            if len(entries) != len(events) or None in entries.values():
                raise ChannelError(self._name, _NOT_TAKEN)
            try:
                for sequence, entry in entries.items():
                    # At once; an interrupt between two of them leaves the rest taken.
                    del taken[sequence]  # type: ignore[arg-type]
                    transaction.taken_bytes -= entry[1]  # type: ignore[index]
                    self._taken -= 1
                    self._bytes -= entry[1]  # type: ignore[index]
                    counters.take_successes += 1
            finally:
                counters.rated(0, len(entries))
                self._serve()

    def _commit(self, transaction: MemoryTransaction, timeout: float | None) -> Stored:
        if transaction.ended:  # an interrupted commit that had happened
            return Stored.MEMORY
        turn = _Turn(lambda turn: self._attempt_commit(turn, transaction))
        started = self._clock.monotonic()
        wait = self._keep_alive if timeout is None else timeout
        self._perform(turn, self._rooms, wait, lambda: self._must_be_of_now(transaction))
        if turn.done:
            return Stored.MEMORY
        if transaction.ended:  # by another thread, while this one waited
            raise transaction.wrong_order("commit")
        raise self._full(transaction, self._clock.monotonic() - started)

    def _rollback(self, transaction: MemoryTransaction) -> None:
        with self._lock:
            garbage = transaction.puts
            self._roll_back(transaction)
            self._serve()
        del garbage

    def _orphan(self, transaction: MemoryTransaction) -> None:
        """Have it rolled back soon: this runs wherever garbage is collected, where the lock may be held."""
        self._orphans.append(transaction)
        try:
            self._takers[0].wake.put(None)
        except IndexError:
            return

    # Turns.

    def _perform(self, turn: _Turn, line: deque[_Turn], timeout: float, check: Callable[[], None]) -> None:
        """Have ``turn`` done now, or in its turn within ``timeout`` seconds; what it says then is final."""
        deadline = Deadline.after(self._clock, None if timeout == math.inf else timeout)
        try:
            with self._lock:
                check()
                self._try_or_line_up(turn, line)
            while not (turn.over or self._closed or deadline.expired(self._clock)):
                self._clock.wait_for(turn.wake, deadline)
                self._look_again(turn)
        finally:
            if not turn.over:
                self._leave(turn, line)
        if self._closed and not turn.over:
            self._must_be_open()

    def _try_or_line_up(self, turn: _Turn, line: deque[_Turn]) -> None:
        try:
            if not line:
                turn.attempt(turn)
            if not turn.over:
                line.append(turn)
        finally:
            self._serve()

    def _look_again(self, turn: _Turn) -> None:
        """After a wakeup that need not have been for ``turn``."""
        if not turn.over:
            with self._lock:
                self._serve()

    def _leave(self, turn: _Turn, line: deque[_Turn]) -> None:
        """Give up the place in the line; those behind may fit."""
        with self._lock:
            if turn in line:
                line.remove(turn)
            self._serve()

    def _serve(self) -> None:
        """Do whatever is possible for those who wait; to be called after every change."""
        if self._orphans or self._rooms or self._takers:
            try:
                self._serve_all()
            except BaseException:  # an interrupt shall cost nobody his turn
                self._serve_all()
                raise

    def _serve_all(self) -> None:
        while self._orphans:
            self._roll_back(self._orphans[0])
            del self._orphans[0]
        while self._serve_line(self._rooms) or self._serve_line(self._takers):
            pass

    @staticmethod
    def _serve_line(line: deque[_Turn]) -> bool:
        served = False
        while line:
            turn = line[0]
            if not turn.over:
                turn.attempt(turn)
            if not turn.over:
                break
            # At once.
            del line[0]
            turn.wake.put(None)
            served = True
        return served

    def _attempt_take(self, turn: _Turn, transaction: MemoryTransaction, count: int, max_bytes: int | None) -> None:
        if transaction.ended:
            turn.over = True
            return
        head, room = self._head, self._transaction_capacity - len(transaction.taken)
        entries = self._queue[head : head + min(count, room)]
        if not entries:
            return
        if max_bytes is not None:
            entries = _within(entries, max_bytes)
        number, size = len(entries), sum([entry[1] for entry in entries])
        taken, blanks = {entry[0]: entry for entry in entries}, [None] * len(entries)
        # At once.
        self._queue[head : head + number] = blanks
        self._head = head + number
        self._taken += number
        self._counters.take_attempts += number - 1
        transaction.taken |= taken
        transaction.taken_bytes += size
        turn.entries = entries
        turn.over = turn.done = True
        self._compact()

    def _compact(self) -> None:
        if self._head >= _COMPACT and 2 * self._head >= len(self._queue):
            # At once.
            del self._queue[: self._head]
            self._head = 0

    def _attempt_commit(self, turn: _Turn, transaction: MemoryTransaction) -> None:
        puts, takes = len(transaction.puts), len(transaction.taken)
        size = transaction.put_bytes - transaction.taken_bytes
        if transaction.ended or self._never_fits(puts - takes, size):
            turn.over = True
            return
        if not self._fits(puts - takes, size):
            return
        after, counters = self._next + puts, self._counters
        entries = list(
            zip(
                range(self._next, after),
                transaction.put_sizes,
                transaction.puts,
                repeat(self._clock.monotonic(), puts),
                strict=True,
            )
        )
        # At once.
        self._queue += entries
        self._next = after
        self._taken -= takes
        self._bytes += size
        counters.put_successes += puts
        counters.take_successes += takes
        turn.garbage = transaction.taken
        transaction.puts, transaction.put_sizes, transaction.taken = [], [], {}
        transaction.put_bytes = transaction.taken_bytes = 0
        transaction.last = after - 1 if puts else None
        transaction.ended = turn.over = turn.done = True
        counters.rated(puts, takes)

    def _roll_back(self, transaction: MemoryTransaction) -> None:
        """Put the takes back, once; those of before a close or a fork are gone."""
        back = sorted(transaction.taken.values()) if self._is_of_now(transaction) else []
        if transaction.ended or not back:
            transaction.ended = True
            return
        number = len(back)
        end = bisect_left(self._queue, back[-1], self._head)
        back = sorted(back + self._queue[self._head : end])
        start = max(0, self._head - number)
        # At once.
        self._queue[start:end] = back
        self._head = start
        self._taken -= number
        transaction.puts, transaction.put_sizes, transaction.taken = [], [], {}
        transaction.put_bytes = transaction.taken_bytes = 0
        transaction.ended = True

    # Room.

    @property
    def _size(self) -> int:
        return len(self._queue) - self._head

    @property
    def _used(self) -> int:
        return self._size + self._taken

    def _fits(self, events: int, size: int) -> bool:
        if events > 0 and self._used + events > self._capacity:
            return False
        return size <= 0 or self._byte_capacity is None or self._bytes + size <= self._byte_capacity

    def _never_fits(self, events: int, size: int) -> bool:
        return events > self._capacity or (self._byte_capacity is not None and size > self._byte_capacity)

    def _full(self, transaction: MemoryTransaction, waited: float) -> ChannelFullError:
        with self._lock:
            self._counters.put_errors += len(transaction.puts)
            return ChannelFullError(
                self._name,
                size=self._used,
                capacity=self._capacity,
                used_bytes=self._bytes,
                byte_capacity=self._byte_capacity,
                wanted=max(0, len(transaction.puts) - len(transaction.taken)),
                wanted_bytes=max(0, transaction.put_bytes - transaction.taken_bytes),
                last_take_age=self._counters.last_take_age,
                waited=waited,
            )

    # Who may.

    def _must_be_open(self) -> None:
        if self._closed:
            raise ChannelClosedError(self._name, "it is closed")

    def _is_of_now(self, transaction: MemoryTransaction) -> bool:
        return not self._closed and transaction.epoch == self._epoch

    def _must_be_of_now(self, transaction: MemoryTransaction) -> None:
        self._must_be_open()
        if transaction.epoch != self._epoch:
            message = "the transaction was begun before this process was forked, and is the parent's: make a new one"
            raise ChannelClosedError(self._name, message)

    def _must_be_usable(self, transaction: MemoryTransaction, call: str) -> None:
        self._must_be_of_now(transaction)
        if transaction.ended:
            raise transaction.wrong_order(call)

    def _renew_in_child(self) -> None:
        """Start empty; called in the child, in its only thread. Takes no lock that existed before."""
        self._epoch += 1
        self._empty()


_NOT_TAKEN = (
    "acknowledge: an event was not taken in this transaction, was acknowledged before, or is in the list twice; "
    "none of them was acknowledged"
)


def _restore(*arguments: Any) -> MemoryChannel:
    *limits, name = arguments
    return MemoryChannel(*limits, name=name)


def _sizes(events: Iterable[Event], buffer_percentage: int) -> list[int]:
    """What each counts for, bytes. Headers that several share are measured once.

    :raises InvalidArgumentError: not an event, or not of text and bytes.
    """
    sizes, known, bodies = [], {0: 0}, 100 - buffer_percentage
    try:
        for event in events:
            headers, body = event.headers, event.body
            if type(body) is not bytes:
                raise InvalidArgumentError(f"put: an event's body must be bytes, got {type(body).__name__}")
            size, key = len(body), id(headers) if headers else 0
            if key not in known:
                known[key] = _headers_size(event)
            sizes.append(max(size + known[key], -(-100 * size // bodies)))
    except AttributeError as error:
        raise InvalidArgumentError(f"put: takes Events of headers and a body, got {error.obj!r:.200}") from error
    return sizes


def _headers_size(event: Event) -> int:
    return sum([len(name.encode()) + len((value or "").encode()) for name, value in event.headers.items()])


def _within(entries: list[_Entry], max_bytes: int) -> list[_Entry]:
    """As many as have bodies of at most ``max_bytes`` together, and at least one."""
    total = 0
    for number, entry in enumerate(entries):
        total += len(entry[2].body)
        if total > max_bytes and number:
            return entries[:number]
    return entries


def _is_integer(value: object, low: int, high: float = math.inf) -> bool:
    return type(value) is int and low <= value <= high


def _check_limits(capacity: int, transaction_capacity: int, byte_capacity: int | None, keep_alive: float) -> None:
    if not _is_integer(capacity, 1):
        raise ConfigError("capacity", "an integer, at least 1 (events)", capacity)
    if not _is_integer(transaction_capacity, 1, capacity):
        rule = f"an integer from 1 to capacity, which is {capacity} (events)"
        raise ConfigError("transaction_capacity", rule, transaction_capacity)
    if byte_capacity is not None and not _is_integer(byte_capacity, 0):
        raise ConfigError(
            "byte_capacity", "an integer, at least 0 (bytes), or None; 0 and None are no limit", byte_capacity
        )
    if type(keep_alive) not in (int, float) or not keep_alive >= 0:
        raise ConfigError("keep_alive", "a number, at least 0 (seconds)", keep_alive)


def _after_fork_in_child() -> None:
    for channel in list(_channels):
        channel._renew_in_child()


# The package imports the channels first, so that they are empty by the time that a producer's hook uses them.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
