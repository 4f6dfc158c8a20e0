"""Channels as the agent uses them: each event of the channel is a batch.

Limits count the events in the batches, as Flume's ``capacity`` does. The file is long because puts, takes, returns and
losses all change that count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing

from ...channels import SpillableChannel
from ...channels.file.store.lost import LostEvent
from ...channels.spillable import MEMORY_NUMBERS
from ...model.errors import ChannelFullError, DiskFullError, InvalidArgumentError
from ...model.interfaces import Channel, ChannelStats, Event, Transaction
from ...runtime.clock import Clock, Deadline, Stop, WaitingRoom
from ...runtime.locks import Lock
from ...runtime.loggers import get_logger
from ..events.batch import EventBatch, Position
from ..events.counters import Counters
from ..events.event_format import UnreadableBatchError, count_of, position_of, read_batch, write_batch
from ..ledger.ledgers import Ledgers
from ..ledger.lost_batches import Losses
from ..ledger.number_epochs import Origins
from .delivery import MOST_BATCHES, Delivery

_log = get_logger("loghub.agent.channel")

#: Seconds between two checks of a waiting take for events that the channel itself has put back.
_POLL_SECONDS = 0.5


def can_never_take(error: BaseException) -> bool:
    """Return True if the channel can never take the batch, such as a batch larger than the channel."""
    return isinstance(error, InvalidArgumentError) or (isinstance(error, ChannelFullError) and error.never)


class BatchChannel:
    """A channel of batches.

    :param channel: the channel that stores them.
    :param keeps: True if its events survive the process.
    :param capacity: the maximum number of events in all batches together; None for the channel's own limit only. An
        empty channel takes a batch of any size.
    :param keep_alive: the default wait of a put for room, in seconds.
    :param held: the number of events already in the channel.
    :param found: the positions of the batches already in the channel.
    :param leaves_free: bytes of the disk that puts leave free; None if the disk is not the limit.
    :ivar origins: identify the batches' numbers, so that a batch is recognized after a restart, too, if the channel
        keeps its events. None if several sinks take from the channel, since they deliver out of order.
    :ivar hurried: True while a thread waits until the channel is empty.
    :ivar counters: counters of events put, taken and lost, under Flume's names.
    :ivar losses: reports batches that are damaged when the channel is opened.
    """

    def __init__(
        self,
        channel: Channel,
        clock: Clock,
        *,
        keeps: bool,
        capacity: int | None = None,
        keep_alive: float = 3.0,
        held: int = 0,
        found: Iterable[Position] = (),
        origins: Origins | None = None,
        leaves_free: int | None = None,
    ) -> None:
        self.channel, self.keeps, self.origins = channel, keeps, origins
        self._found: Iterable[Position] = found
        self._ledgers: Ledgers | None = None
        self.capacity, self.keep_alive = capacity, keep_alive
        self._clock = clock
        self._room = WaitingRoom(clock, look_again=1.0)
        self._takers = WaitingRoom(clock, look_again=_POLL_SECONDS)
        self._lock = Lock()  # guards _held, _puts, _putting and _taking
        self._held = held
        #: Puts begun; puts in progress; True if _held may include lost events.
        self._puts, self._putting, self._unsure = 0, 0, False
        #: Takes in progress, or not counted yet.
        self._taking = 0
        self.hurried = False
        self._leaves_free, self._needs_free = leaves_free, 0
        #: The highest number given to pass_over.
        self._passed = -1
        self.counters = Counters()
        self.losses = Losses(self, self.counters)

    def attach(self, ledgers: Ledgers) -> None:
        """Attach the sources' ledgers. They count the events that are in the channel, and all that enter and leave."""
        self._ledgers, found, self._found = ledgers, self._found, ()
        for position in found:
            ledgers.of_name(position.name).find(self, position)

    @property
    def name(self) -> str:
        """The channel's name."""
        return self.channel.name

    @property
    def held(self) -> int:
        """The events in the channel, those taken for delivery included."""
        return self._held

    @property
    def spills(self) -> bool:
        """True if the channel keeps on the disk what does not fit into its memory."""
        return isinstance(self.channel, SpillableChannel)

    @property
    def fill(self) -> float:
        """The fill level from 0 to 1, by the nearest limit of the channel or the disk."""
        stats = self.channel.stats()
        fills = [stats.fill, self._fill_of_disk(stats), self._held / self.capacity if self.capacity else 0.0]
        return max([*fills, stats.bytes / stats.byte_capacity if stats.byte_capacity else 0.0])

    def _fill_of_disk(self, stats: ChannelStats) -> float:
        """Return the fill level by free disk space. A spillable channel is full only if the disk refused what it has
        spilled.
        """
        if stats.file is None:
            return 0.0
        free = stats.file.free_bytes
        if free < self._needs_free and (self._leaves_free is not None or stats.bytes):
            return 1.0
        if self._leaves_free is None:
            return 0.0
        left = max(0, free - self._leaves_free)
        return stats.bytes / (stats.bytes + left) if left else 1.0

    def has_room(self, count: int) -> bool:
        """Return True if a batch of so many events would probably fit now."""
        stats = self.channel.stats()
        fits = self.capacity is None or self._held == 0 or self._held + count <= self.capacity
        return fits and stats.open and self.fill < 1

    def stats(self) -> ChannelStats:
        """Return the channel's own figures, which count batches."""
        return self.channel.stats()

    def put(self, batch: EventBatch, timeout: float | None = None, stop: Stop | None = None) -> None:
        """Commit a batch.

        :param timeout: seconds to wait for room; None for ``keep_alive``.
        :param stop: ends the wait.
        :raises ChannelFullError: if there was no room in that time, or before ``stop``.
        :raises ChannelError: if the channel is closed, or the disk failed.
        """
        begun = self._clock.monotonic()
        deadline = Deadline.after(self._clock, self.keep_alive if timeout is None else timeout, stop)
        self.counters.add(EventPutAttemptCount=batch.count)
        self._enter(batch, deadline)
        try:
            self._commit(batch, deadline)
        except DiskFullError as error:
            self._needs_free = error.wanted
            self._withdraw(batch.count)
            # Checkpoint now, so that the channel deletes delivered events without waiting for the next checkpoint.
            getattr(self.channel, "checkpoint", bool)()
            raise
        except ChannelFullError as error:
            self._withdraw(batch.count)
            raise error.after(self._clock.monotonic() - begun) from error
        except BaseException:
            self._withdraw(batch.count)
            raise
        finally:
            with self._lock:
                self._putting -= 1
        self._needs_free = 0
        self.counters.add(EventPutSuccessCount=batch.count)
        self._takers.wake_all()

    def take(self, most_events: int, most_bytes: int, timeout: float, stop: Stop | None = None) -> Delivery | None:
        """Return batches for one delivery; None if none came in time.

        :param most_events: the maximum number of events of all batches together; at least one batch is taken.
        :param most_bytes: maximum bytes of all batches together; at least one batch is taken.
        :param timeout: seconds to wait.
        :param stop: ends the wait.
        """
        self.counters.add(EventTakeAttemptCount=1)
        if stop is None:
            return self._take(most_events, most_bytes, timeout)
        found: list[Delivery | None] = []

        def is_over() -> bool:
            if not found or self._held > 0:  # an empty channel is asked only once, since that costs a transaction
                found.append(self._take(most_events, most_bytes, 0))
            return found[-1] is not None

        self._takers.wait_until(is_over, Deadline.after(self._clock, timeout, stop))
        return found[-1]

    def pass_over(self, sequence: int) -> None:
        """Record that a batch will be delivered after batches with higher numbers, so that it gets no number."""
        self._passed = max(self._passed, sequence)
        note: Callable[[int], object] | None = getattr(self.channel, "_note_passed", None)
        if note is not None and self.origins is not None:
            note(sequence)

    def ended(self) -> None:
        """Count the end of a take."""
        with self._lock:
            self._taking -= 1

    def came_back(self) -> None:
        """Wake takers: events that were taken are available again."""
        self._takers.wake_all()

    def _take(self, most_events: int, most_bytes: int, timeout: float) -> Delivery | None:
        transaction = self.channel.transaction()
        transaction.begin()
        try:
            delivery = Delivery(self, transaction, most_events, most_bytes)
            if delivery.more(timeout):
                with self._lock:
                    self._taking += 1
                return delivery
            transaction.rollback()
            transaction.close()
            if self._unsure:
                self._reset_count()
            return None
        except BaseException:
            transaction.rollback()
            transaction.close()
            raise

    def read(self, events: Sequence[Event]) -> list[EventBatch]:
        """Decode the batches of events that were taken."""
        if self.origins is not None:  # if a power cut undid a delivered batch, its source would read it again
            self.make_synced(events[-1].sequence or 0)
        return [self._read(event) for event in events]

    def lose(self, events: Sequence[LostEvent], others: int) -> None:
        """Report batches that are damaged on the disk, and are no longer in the channel."""
        count, is_all = self.losses.found(events, others)
        self._unsure = self._unsure or not is_all
        self._withdraw(count)

    def _reset_count(self) -> None:
        """Reset the count of an empty channel, which includes lost events that could not be counted."""
        with self._lock:
            puts, busy = self._puts, self._putting + self._taking
        stats = self.channel.stats()
        if busy or stats.size or stats.taken:
            return
        with self._lock:
            if self._puts == puts:
                self._held, self._unsure = 0, False
        self._room.wake_all()

    def leaving(self, batches: Sequence[EventBatch]) -> None:
        """Record in the ledgers that batches were delivered, before they leave.

        :raises ChannelIOError: if the ledgers cannot be written.
        """
        if self._ledgers is not None:
            self._ledgers.leaving(self, batches)

    def leave(self, batches: Sequence[EventBatch]) -> None:
        """Count batches that have left."""
        count = sum(batch.count for batch in batches)
        self.counters.add(EventTakeSuccessCount=count)
        self._withdraw(count)
        if self._ledgers is not None:
            self._ledgers.left(self, batches)

    def flush(self) -> None:
        """Write the ledgers' pending notes."""
        if self._ledgers is not None:
            self._ledgers.flush()

    def discard(self) -> int:
        """Drop the events of a channel that does not keep them, when it ends. Return the number that no source can read
        again.
        """
        lost = 0
        with ExitStack() as ends:  # rolled back together at the end, so that no event is taken twice
            while True:
                transaction = ends.enter_context(closing(self.channel.transaction()))
                transaction.begin()
                events = transaction.take(MOST_BATCHES, timeout=0)
                if not events:
                    transaction.rollback()
                    return lost
                # Spilled events are there again after the next start.
                gone = [each for each in events if not self.spills or (each.sequence or 0) >= MEMORY_NUMBERS]
                lost += sum(count_of(event) for event in gone if position_of(event) is None)
                transaction.acknowledge(gone)
                self._withdraw(sum(map(count_of, gone)))
                ends.callback(transaction.rollback)

    def close(self) -> None:
        """Write the ledgers' notes, and close the channel."""
        try:
            self.flush()
        finally:
            self.channel.close()

    def wait_until_empty(self, deadline: Deadline) -> bool:
        """Wait until all batches are delivered. Return False on a timeout. Sinks do not wait for larger deliveries
        meanwhile.
        """
        self.hurried = True
        try:
            return self._room.wait_until(lambda: self._held <= 0, deadline)
        finally:
            self.hurried = False

    def _withdraw(self, count: int) -> None:
        with self._lock:
            self._held -= count
        self._room.wake_all()

    def _enter(self, batch: EventBatch, deadline: Deadline) -> None:
        begun, count = self._clock.monotonic(), batch.count
        if self._entered(count) or self._room.wait_until(lambda: self._entered(count), deadline):
            return
        stats = self.channel.stats()
        raise ChannelFullError(
            self.name,
            size=self._held,
            capacity=self.capacity or stats.capacity,
            used_bytes=stats.bytes,
            byte_capacity=stats.byte_capacity,
            wanted=count,
            wanted_bytes=batch.size,
            last_take_age=stats.last_take_age,
            waited=self._clock.monotonic() - begun,
            never=False,
        )

    def _entered(self, count: int) -> bool:
        with self._lock:
            fits = self.capacity is None or self._held == 0 or self._held + count <= self.capacity
            if fits:
                self._held += count
                self._puts += 1
                self._putting += 1
        return fits

    def _commit(self, batch: EventBatch, deadline: Deadline) -> None:
        position = batch.position
        ledger = None if position is None or self._ledgers is None else self._ledgers.of_name(position.name)
        if ledger and position:
            ledger.putting(self, position)
        try:
            with self.channel.transaction() as transaction:
                transaction.put(write_batch(batch))
                self._finish(transaction, deadline)
        except BaseException as error:
            if ledger and position:
                ledger.failed(self, position)
            if isinstance(error, ChannelFullError):
                raise self._in_events(error, batch.count) from error
            raise
        if ledger and position:
            ledger.put(self, position, transaction.last_sequence or -1)

    def _in_events(self, full: ChannelFullError, count: int) -> ChannelFullError:
        """Return the same error with counts of events, since the channel itself counts batches."""
        return ChannelFullError(
            self.name,
            size=max(0, self._held - count),
            capacity=self.capacity or 0,
            used_bytes=full.used_bytes,
            byte_capacity=full.byte_capacity,
            wanted=count,
            wanted_bytes=full.wanted_bytes,
            last_take_age=full.last_take_age,
            waited=full.waited,
            never=full.never,
        )

    def _finish(self, transaction: Transaction, deadline: Deadline) -> None:
        """Commit once the channel itself has room. The channel's own wait does not end at a stop, so the commit is
        retried whenever a batch leaves.
        """
        if deadline.stop is None:
            transaction.commit(deadline.remaining(self._clock))
            return
        full = deque[ChannelFullError](maxlen=1)

        def is_committed() -> bool:
            try:
                transaction.commit(0)
            except ChannelFullError as error:
                full.append(error)
                return error.never
            return True

        if not self._room.wait_until(is_committed, deadline) or (full and full[0].never):
            raise full[0]

    def make_synced(self, sequence: int) -> None:
        """Wait until all events up to this number are on the disk."""
        if self.channel.synced_sequence < sequence:
            self.channel.sync()

    def _read(self, event: Event) -> EventBatch:
        try:
            batch = read_batch(event)
            # A batch delivered late gets no origin: its number is below others already delivered.
            sequence, passed = batch.sequence, max(self._passed, getattr(self.channel, "_passed_through", -1))
            if self.origins is not None and sequence is not None and sequence > passed:
                batch.origin = self.origins.of(sequence)
            return batch.encodable()
        except UnreadableBatchError as error:
            _log.error(
                "channel %s: batch %s cannot be decoded; its bytes are delivered as one event: %s",
                self.name,
                event.sequence,
                error,
            )
            self._unsure = True
            headers = {name: value for name, value in event.headers.items() if value is not None}
            return EventBatch.of_bodies([event.body], headers).numbered(event.sequence).encodable()
