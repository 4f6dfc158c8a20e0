"""SpillableChannel: a memory channel with an overflow, such as a file channel.

**Order.** Puts go to memory until it is full. From then on they go to the overflow, until the overflow is empty and has
no open take. So events in memory are always older than events in the overflow, and takes empty the memory first. The
puts of one transaction go to one of the two, whole, and a ``take`` returns events of one of them. Commits that overlap
in time may come in either order.

**Guarantee.** It is that of the place where the puts went, which ``commit`` returns. :attr:`Stored.MEMORY
<producer.model.interfaces.Stored.MEMORY>` is lost with the process, and also by ``close``; the overflow keeps its own
guarantee. So an event is either fast or safe, and only load that memory cannot hold is safe. If every event must
survive, use a file channel alone.

**Sequence numbers** in memory begin at :data:`MEMORY_NUMBERS`; the overflow has its own. Each of the two sequences
increases. ``synced_sequence`` is the overflow's and never covers an event in memory.

**Fork.** In a child the memory is empty, and the overflow behaves as it does alone.

The file is long because the rule that keeps the order concerns every call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..model.errors import (
    ChannelClosedError,
    ChannelError,
    ChannelFullError,
    ChannelIOError,
    TransactionFullError,
    TransactionStateError,
)
from ..model.interfaces import Channel, ChannelStats, Event, Stored, Transaction
from ..model.owned_lock import OwnedLock
from ..runtime.clock import LOOK_AGAIN, Clock, Deadline, SystemClock, WaitingRoom
from ..runtime.closing import Closing
from ..runtime.forks import Stage, watch_fork
from .counters import ChannelCounters
from .limits import event_sizes
from .memory import MemoryChannel
from .transaction import BaseTransaction

#: The first sequence number in memory, above those of any other channel. LogHub permits numbers up to 2**63, and the
#: agent needs 4096 for each event.
MEMORY_NUMBERS = 2**50


class SpillableTransaction(BaseTransaction):
    """A transaction of a spillable channel; it puts or takes, because an overflow may refuse both together.

    :ivar puts: uncommitted puts; guarded, like the others, by the channel's lock.
    :ivar putting: the inner transaction of the last try to commit the puts.
    :ivar parts: the inner transactions of the takes, by channel.
    """

    def __init__(self, channel: SpillableChannel, epoch: int) -> None:
        super().__init__(channel.name)
        self._channel = channel
        self.epoch = epoch
        self.puts: list[Event] = []
        self.putting: Transaction | None = None
        self.parts: dict[Channel, Transaction] = {}

    @property
    def last_sequence(self) -> int | None:
        return None if self.putting is None else self.putting.last_sequence

    def _do_put(self, events: Sequence[Event]) -> None:
        event_sizes(events, 0)  # refuses invalid events now, not at commit
        self._channel._put(self, events)

    def _do_take(self, count: int, max_bytes: int | None, timeout: float | None) -> list[Event]:
        return self._channel._take(self, count, max_bytes, timeout)

    def _do_acknowledge(self, events: Sequence[Event]) -> None:
        for channel, some in self._by_channel(events):
            self.part(channel).acknowledge(some)

    def _do_give_back(self, events: Sequence[Event]) -> None:
        for channel, some in self._by_channel(events):
            self.part(channel).give_back(some)
        self._channel._takers.wake_one()

    def _by_channel(self, events: Sequence[Event]) -> list[tuple[Channel, list[Event]]]:
        self._channel._check_epoch(self)
        late = [event for event in events if event.sequence is None or event.sequence < MEMORY_NUMBERS]
        early = [event for event in events if event.sequence is not None and event.sequence >= MEMORY_NUMBERS]
        memory, overflow = self._channel._memory, self._channel._overflow
        return [(channel, some) for channel, some in ((overflow, late), (memory, early)) if some]

    def part(self, channel: Channel) -> Transaction:
        """Return the inner transaction of the takes from a channel."""
        self._channel._check_epoch(self)
        part = self.parts.get(channel)
        if part is not None:
            return part
        new = channel.transaction()
        new.begin()
        with self._channel._lock:
            part = self.parts.setdefault(channel, new)
        if part is not new:  # another thread has added one meanwhile
            new.rollback()
            new.close()
        return part

    def _do_commit(self, timeout: float | None) -> Stored:
        self._channel._check_epoch(self)
        return self._channel._commit_puts(self, timeout) if self.puts else self._commit_takes()

    def _commit_takes(self) -> Stored:
        """Commit the overflow first, because it may fail and must leave everything unchanged then."""
        stored = Stored.MEMORY
        for channel in (self._channel._overflow, self._channel._memory):
            part = self.parts.get(channel)
            if part is not None:
                stored = part.commit()
                part.close()
                del self.parts[channel]
        return stored

    def _do_rollback(self) -> None:
        self.puts = []
        try:
            self._roll_back_part(self._channel._memory)
        finally:
            self._roll_back_part(self._channel._overflow)
            self._channel._takers.wake_one()

    def _roll_back_part(self, channel: Channel) -> None:
        part = self.parts.pop(channel, None)
        if part is not None:
            with suppress(TransactionStateError):  # a commit that raised has committed
                part.rollback()
                part.close()


class SpillableChannel(Closing):
    """A channel that keeps events in memory while there is capacity, and then in another channel.

    It implements :class:`~producer.model.interfaces.Channel`. Both channels belong to it: do not use them directly.
    :meth:`close` closes them.

    Example:

        >>> from loghub.channels import Event, FileChannel, MemoryChannel, SpillableChannel
        >>> channel = SpillableChannel(MemoryChannel(capacity=1), FileChannel("overflow"))
        >>> for body in (b"first", b"second"):
        ...     with channel.transaction() as transaction:
        ...         transaction.put(Event({}, body))
        ...         transaction.commit()
        <Stored.MEMORY: 'memory'>
        <Stored.DISK: 'disk'>
        >>> channel.close()  # the first event is lost, the second one stays on the disk

    :param memory: the channel used first. Its ``transaction_capacity`` limits the puts of a transaction; both channels'
        limit the takes. A take waits for its ``keep_alive``.
    :param overflow: the channel used when memory is full. A commit waits for its capacity. Its ``transaction_capacity``
        should be at least the memory's.
    :param name: the name in messages and statistics; by default the names of both.
    :param clock: the source of time; the system's by default.
    """

    #: False: :meth:`close` loses the events in memory.
    survives_close = False

    def __init__(
        self, memory: MemoryChannel, overflow: Channel, *, name: str | None = None, clock: Clock | None = None
    ) -> None:
        self._memory, self._overflow = memory, overflow
        self._name = name or f"{memory.name}+{overflow.name}"
        self._clock = clock or SystemClock()
        self._closed = False
        self._epoch = 0
        self._start()
        memory._number_from(MEMORY_NUMBERS)
        watch_fork(self, Stage.CHANNELS)

    def _start(self) -> None:
        # Guards the fields below and the transactions; not held during calls of the two channels.
        self._lock = OwnedLock()
        self._counters = ChannelCounters(self._clock)
        self._takers = WaitingRoom(self._clock, LOOK_AGAIN)  # of calls that wait for events
        self._spilling = True  # True if the overflow may hold events; checked when needed
        self._spills = 0  # commits to the overflow begun
        self._spills_open = 0  # commits to the overflow in progress

    @property
    def name(self) -> str:
        """Return the name for messages and statistics."""
        return self._name

    @property
    def synced_sequence(self) -> int:
        """Return the overflow's sequence number up to which all events are on the disk."""
        return self._overflow.synced_sequence

    @property
    def _passed_through(self) -> int:
        """Return the overflow's number up to which events may come after later ones; -1 for none."""
        return int(getattr(self._overflow, "_passed_through", -1))

    def transaction(self) -> SpillableTransaction:
        """Return a new transaction.

        Example:

            >>> with channel.transaction() as transaction:
            ...     transaction.put(Event({}, b"hello"))

        :raises ChannelClosedError: the channel is closed.
        """
        self._check_open()
        return SpillableTransaction(self, self._epoch)

    def sync(self, timeout: float | None = None) -> None:
        """Sync the overflow; events in memory stay there.

        Example:

            >>> channel.sync(timeout=10)

        :param timeout: seconds; None for no limit.
        """
        self._check_open()
        self._overflow.sync(timeout)

    def stats(self) -> ChannelStats:
        """Return the sums of both channels; attempts and errors are counted once, here.

        ``oldest_event_age`` is that of the memory, or of the overflow if the memory is empty. ``last_take_age`` is the
        lower one of the two.

        Example:

            >>> channel.stats().size
            0
        """
        memory, overflow = self._memory.stats(), self._overflow.stats()
        parts = (memory, overflow)
        used = sum(part.size + part.taken for part in parts)
        capacity = memory.capacity + overflow.capacity
        limits = [part.byte_capacity for part in parts if part.byte_capacity is not None]
        last_takes = [part.last_take_age for part in parts if part.last_take_age is not None]
        with self._lock:
            counters = self._counters
            own = (counters.put_attempts, counters.put_errors, counters.take_attempts, counters.take_errors)
        return ChannelStats(
            name=self._name,
            open=not self._closed and memory.open and overflow.open,
            size=memory.size + overflow.size,
            taken=memory.taken + overflow.taken,
            capacity=capacity,
            fill=used / capacity if capacity else 0.0,
            bytes=memory.bytes + overflow.bytes,
            byte_capacity=sum(limits) if len(limits) == len(parts) else None,
            put_attempts=own[0],
            put_successes=memory.put_successes + overflow.put_successes,
            take_attempts=own[2],
            take_successes=memory.take_successes + overflow.take_successes,
            put_errors=own[1],
            take_errors=own[3],
            put_rate=memory.put_rate + overflow.put_rate,
            take_rate=memory.take_rate + overflow.take_rate,
            oldest_event_age=overflow.oldest_event_age if memory.oldest_event_age is None else memory.oldest_event_age,
            last_take_age=min(last_takes, default=None),
            waiting=memory.waiting + overflow.waiting,
            file=overflow.file,
        )

    def close(self) -> None:
        """Close both channels: events in memory are lost and logged, those in the overflow stay there.

        Example:

            >>> channel.close()
        """
        with self._lock:
            self._closed = True
        self._takers.wake_all()
        try:
            self._memory.close()
        finally:
            self._overflow.close()

    def _renew_in_child(self) -> None:
        self._epoch += 1
        self._start()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._memory, self._overflow, self._name)

    def __repr__(self) -> str:
        return f"<SpillableChannel {self._name}: {self._memory!r}, then {self._overflow!r}>"

    # Puts.

    def _put(self, transaction: SpillableTransaction, events: Sequence[Event]) -> None:
        most = self._memory.transaction_capacity
        with self._lock:
            self._check_epoch(transaction)
            self._check_not_mixed(transaction.parts, "put", "takes")
            self._counters.put_attempts += len(events)
            if len(transaction.puts) + len(events) > most:
                raise TransactionFullError(self._name, "puts", most)
            transaction.puts += events

    def _commit_puts(self, transaction: SpillableTransaction, timeout: float | None) -> Stored:
        try:
            stored = self._put_somewhere(transaction, timeout)
        except ChannelError:
            with self._lock:
                self._counters.put_errors += 1
            raise
        self._takers.wake_one()
        return stored

    def _put_somewhere(self, transaction: SpillableTransaction, timeout: float | None) -> Stored:
        if not self._must_spill():
            try:
                return self._put_through(transaction, self._memory, 0.0)
            except ChannelFullError:
                pass
        return self._spill(transaction, timeout)

    def _must_spill(self) -> bool:
        """True if the overflow holds events, or will; only otherwise may puts go to memory."""
        with self._lock:
            if not self._spilling or self._spills_open:
                return self._spilling
            spills = self._spills
        stats = self._overflow.stats()
        with self._lock:
            if not stats.size and not stats.taken and self._spills == spills:
                self._spilling = False
            return self._spilling

    def _spill(self, transaction: SpillableTransaction, timeout: float | None) -> Stored:
        with self._lock:
            self._spilling = True
            self._spills += 1
            self._spills_open += 1
        try:
            return self._put_through(transaction, self._overflow, timeout)
        finally:
            with self._lock:
                self._spills_open -= 1

    @staticmethod
    def _put_through(transaction: SpillableTransaction, channel: Channel, timeout: float | None) -> Stored:
        part = channel.transaction()
        with part:
            part.put_many(transaction.puts)
            transaction.putting = part
            return part.commit(timeout)

    # Takes.

    def _take(
        self, transaction: SpillableTransaction, count: int, max_bytes: int | None, timeout: float | None
    ) -> list[Event]:
        with self._lock:
            self._check_epoch(transaction)
            self._check_not_mixed(transaction.puts, "take", "puts")
            self._counters.take_attempts += 1
        try:
            wait = self._memory.keep_alive if timeout is None else timeout
            events = self._take_or_wait(transaction, count, max_bytes, wait)
        except ChannelIOError:
            with self._lock:
                self._counters.take_errors += 1
            raise
        with self._lock:
            self._counters.take_attempts += max(0, len(events) - 1)
        return events

    def _take_or_wait(
        self, transaction: SpillableTransaction, count: int, max_bytes: int | None, timeout: float
    ) -> list[Event]:
        events = self._take_now(transaction, count, max_bytes)
        if events or timeout <= 0:
            return events

        def taken_now() -> bool:
            events.extend(self._take_now(transaction, count, max_bytes))
            return bool(events)

        self._takers.wait_until(taken_now, Deadline.after(self._clock, None if timeout == math.inf else timeout))
        self._takers.wake_one()  # there may be more events
        return events

    def _take_now(self, transaction: SpillableTransaction, count: int, max_bytes: int | None) -> list[Event]:
        events: list[Event] = []
        try:
            events = transaction.part(self._memory).take(count, max_bytes=max_bytes, timeout=0.0)
        except TransactionFullError:
            if self._memory.stats().size:  # these come first, even if the overflow's transaction has capacity
                raise
        if not events and self._spilling:
            events = transaction.part(self._overflow).take(count, max_bytes=max_bytes, timeout=0.0)
        return events

    # Checks.

    def _check_open(self) -> None:
        if self._closed:
            raise ChannelClosedError(self._name, "it is closed")

    def _check_epoch(self, transaction: SpillableTransaction) -> None:
        self._check_open()
        if transaction.epoch != self._epoch:
            message = "the transaction was begun before this process was forked and is the parent's: make a new one"
            raise ChannelClosedError(self._name, message)

    def _check_not_mixed(self, other: object, call: str, others: str) -> None:
        if other:
            message = f"{call}() in a transaction that has {others}: use one for puts and another one for takes"
            raise TransactionStateError(self._name, message)


def _restore(memory: MemoryChannel, overflow: Channel, name: str) -> SpillableChannel:
    return SpillableChannel(memory, overflow, name=name)
