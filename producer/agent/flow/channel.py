"""BatchChannel: a channel as the agent uses it: each of its events is a batch, and what it may hold is counted in the
events of the batches, as Flume's ``capacity`` is. The file is long since whatever comes, leaves, comes back or is lost
changes that count.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing

from ...channels import SpillableChannel
from ...channels.file.store.lost import LostEvent
from ...channels.spillable import MEMORY_NUMBERS
from ...model.errors import ChannelFullError, DiskFullError, InvalidArgumentError
from ...model.interfaces import Channel, ChannelStats, Event, Transaction
from ...runtime.clock import Clock, Deadline, Stop, WaitingRoom
from ...runtime.loggers import get_logger
from ..events.batch import EventBatch, Position
from ..events.counters import Counters
from ..events.event_format import UnreadableBatchError, count_of, position_of, read_batch, write_batch
from ..ledger.ledgers import Ledgers
from ..ledger.lost_batches import Losses
from ..ledger.number_epochs import Origins
from .delivery import MOST_BATCHES, Delivery

_log = get_logger("loghub.agent.channel")

#: Seconds: who waits for events looks so often whether the channel itself has brought any back.
_LOOK = 0.5


def can_never_take(error: BaseException) -> bool:
    """Whether what a put raised is so for this batch at all times, such as one that is larger than the channel."""
    return isinstance(error, InvalidArgumentError) or (isinstance(error, ChannelFullError) and error.never)


class BatchChannel:
    """Batches in a channel.

    :param channel: where they lie.
    :param keeps: True if its events survive the process.
    :param capacity: events, those of all batches together; None for no limit but the channel's own. A batch of more is
        let in alone.
    :param keep_alive: seconds that a put waits for room unless it says otherwise.
    :param held: events that are in the channel already.
    :param found: where the batches were read that are in it.
    :param leaves_free: bytes of the disk that puts leave; None where the disk is not what limits it.
    :ivar origins: name the numbers, so that a batch is known again, also by another process if the channel keeps its
        events; None if several take from it, who would not do so in order.
    :ivar hurried: whether somebody waits until it is empty.
    :ivar counters: events put and taken, under Flume's names, and lost ones.
    :ivar losses: is told what is damaged when the channel is opened.
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
        self._takers = WaitingRoom(clock, look_again=_LOOK)
        self._lock = threading.Lock()  # guards _held, _puts, _putting and _taking
        self._held = held
        #: Puts that were begun, and how many of them have not ended; whether _held may count what was lost.
        self._puts, self._putting, self._unsure = 0, 0, False
        #: Takes that have not ended, or whose end is not counted yet.
        self._taking = 0
        self.hurried = False
        self._leaves_free, self._needs_free = leaves_free, 0
        #: See :meth:`pass_over`.
        self._passed = -1
        self.counters = Counters()
        self.losses = Losses(self, self.counters)

    def attach(self, ledgers: Ledgers) -> None:
        """Have the ledgers of the sources count what comes and leaves, and what is there already."""
        self._ledgers, found, self._found = ledgers, self._found, ()
        for position in found:
            ledgers.of_name(position.name).find(self, position)

    @property
    def name(self) -> str:
        """The channel's."""
        return self.channel.name

    @property
    def held(self) -> int:
        """Events in the channel, those of all batches, taken ones included."""
        return self._held

    @property
    def spills(self) -> bool:
        """Whether a channel that forgets keeps what its memory does not hold."""
        return isinstance(self.channel, SpillableChannel)

    @property
    def fill(self) -> float:
        """How full it is, 0 to 1, by whatever limit is nearest: of its own, or the disk's."""
        stats = self.channel.stats()
        fills = [stats.fill, self._fill_of_disk(stats), self._held / self.capacity if self.capacity else 0.0]
        return max([*fills, stats.bytes / stats.byte_capacity if stats.byte_capacity else 0.0])

    def _fill_of_disk(self, stats: ChannelStats) -> float:
        """What has memory besides is full only where it has spilled, and the disk does not take what it was given."""
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
        """Whether a batch of so many events would be let in now, as far as can be seen."""
        stats = self.channel.stats()
        fits = self.capacity is None or self._held == 0 or self._held + count <= self.capacity
        return fits and stats.open and self.fill < 1

    def stats(self) -> ChannelStats:
        """The channel's own figures, which count batches."""
        return self.channel.stats()

    def put(self, batch: EventBatch, timeout: float | None = None, stop: Stop | None = None) -> None:
        """Commit a batch.

        :param timeout: seconds to wait for room; None is ``keep_alive``.
        :param stop: ends the wait.
        :raises ChannelFullError: no room in that time, or before ``stop``.
        :raises ChannelError: the channel is closed, or the disk failed.
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
            self._free_space()
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

    def _free_space(self) -> None:
        """Have the channel delete at once what was delivered, and not when its next checkpoint is due."""
        checkpoint: Callable[[], object] | None = getattr(self.channel, "checkpoint", None)
        if checkpoint is not None:
            checkpoint()

    def take(self, most_events: int, most_bytes: int, timeout: float, stop: Stop | None = None) -> Delivery | None:
        """Batches for one delivery; None if none came in time.

        :param most_events: of all batches together, though at least one batch is taken.
        :param most_bytes: likewise.
        :param timeout: seconds.
        :param stop: ends the wait.
        """
        self.counters.add(EventTakeAttemptCount=1)
        if stop is None:
            return self._take(most_events, most_bytes, timeout)
        found: list[Delivery | None] = []

        def is_over() -> bool:
            if not found or self._held > 0:  # an empty channel is asked once: it costs a transaction
                found.append(self._take(most_events, most_bytes, 0))
            return found[-1] is not None

        self._takers.wait_until(is_over, Deadline.after(self._clock, timeout, stop))
        return found[-1]

    def pass_over(self, sequence: int) -> None:
        """A batch will come behind others, whose numbers are higher: it has none then that a destination would know."""
        self._passed = max(self._passed, sequence)
        note: Callable[[int], object] | None = getattr(self.channel, "_note_passed", None)
        if note is not None and self.origins is not None:
            note(sequence)

    def ended(self) -> None:
        """A take has ended, and is counted."""
        with self._lock:
            self._taking -= 1

    def came_back(self) -> None:
        """Events that were taken are there again."""
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
                self._count_anew()
            return None
        except BaseException:
            transaction.rollback()
            transaction.close()
            raise

    def read(self, events: Sequence[Event]) -> list[EventBatch]:
        """The batches of events that were taken."""
        self._make_safe(events[-1])
        return [self._read(event) for event in events]

    def lose(self, events: Sequence[LostEvent], others: int) -> None:
        """Batches are damaged on the disk, and no longer in the channel: see :class:`.losses.Losses`."""
        count, is_all = self.losses.found(events, others)
        self._unsure = self._unsure or not is_all
        self._withdraw(count)

    def _count_anew(self) -> None:
        """What was lost, and could not be counted, is in no channel that is empty."""
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
        """Batches were delivered, and are about to leave.

        :raises ChannelIOError: it cannot be noted that they were read.
        """
        if self._ledgers is not None:
            self._ledgers.leaving(self, batches)

    def leave(self, batches: Sequence[EventBatch]) -> None:
        """Batches have left."""
        count = sum(batch.count for batch in batches)
        self.counters.add(EventTakeSuccessCount=count)
        self._withdraw(count)
        if self._ledgers is not None:
            self._ledgers.left(self, batches)

    def flush(self) -> None:
        """Note what the ledgers have not noted yet."""
        if self._ledgers is not None:
            self._ledgers.flush()

    def discard(self) -> int:
        """Give up what nobody has taken of a channel that forgets, as its end does; how many of these events no source
        can read again.
        """
        lost = 0
        with ExitStack() as ends:  # until then nobody takes the same again
            while True:
                transaction = ends.enter_context(closing(self.channel.transaction()))
                transaction.begin()
                events = transaction.take(MOST_BATCHES, timeout=0)
                if not events:
                    transaction.rollback()
                    return lost
                # What was spilled is there again after the next start.
                gone = [each for each in events if not self.spills or (each.sequence or 0) >= MEMORY_NUMBERS]
                lost += sum(count_of(event) for event in gone if position_of(event) is None)
                transaction.acknowledge(gone)
                self._withdraw(sum(map(count_of, gone)))
                ends.callback(transaction.rollback)

    def close(self) -> None:
        """Note what is safe, and close the channel."""
        try:
            self.flush()
        finally:
            self.channel.close()

    def wait_until_empty(self, deadline: Deadline) -> bool:
        """Wait until all that was put is delivered; False if it is not in time. No sink waits for more meanwhile."""
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
        """The same, with the events that the batches have: the channel itself counts batches."""
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
        """Commit once the channel itself has room. It knows no stop: it is asked again whenever something left."""
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

    def _make_safe(self, newest: Event) -> None:
        """Nobody delivers what a power cut could take from the channel: its source would read it once more."""
        if self.origins is not None:
            self.make_synced(newest.sequence or 0)

    def make_synced(self, sequence: int) -> None:
        """Wait until all events up to this number are on the disk."""
        if self.channel.synced_sequence < sequence:
            self.channel.sync()

    def _read(self, event: Event) -> EventBatch:
        try:
            batch = read_batch(event)
            # The number of one that others may have passed is no longer above those that were delivered.
            sequence, passed = batch.sequence, max(self._passed, getattr(self.channel, "_passed_through", -1))
            if self.origins is not None and sequence is not None and sequence > passed:
                batch.origin = self.origins.of(sequence)
            return batch.encodable()
        except UnreadableBatchError as error:
            _log.error(
                "channel %s: batch %s cannot be decoded, and is delivered as one event: %s",
                self.name,
                event.sequence,
                error,
            )
            self._unsure = True
            headers = {name: value for name, value in event.headers.items() if value is not None}
            return EventBatch.of_bodies([event.body], headers).numbered(event.sequence).encodable()
