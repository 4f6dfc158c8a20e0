"""Feeder: the thread that takes events from the channel, in order, and feeds them to the pipeline as memory allows.

It waits for memory without a limit, since the disk absorbs what memory cannot hold. The order of the channel is the
order of feeding. So undeliverable records of one project may fill the memory, and delay the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter

from ..model.errors import (
    ChannelClosedError,
    ChannelError,
    ProducerClosedError,
    StreamStoppedError,
    TransactionFullError,
)
from ..model.interfaces import Channel, Event
from ..model.owned_lock import OwnedLock
from ..model.records import IDEMPOTENT, StreamKey
from ..model.results import Attempt, Result
from ..pipeline.batching.accumulator import Piece
from ..pipeline.batching.stopped_streams import Line
from ..pipeline.batching.unconfirmed import SentBefore
from ..pipeline.pipeline import Pipeline
from ..pipeline.settling.settlement import stopped_attempt
from ..pipeline.threads import StageThread
from ..runtime.clock import LOOK_AGAIN, Clock, Deadline, Latch, WaitingRoom
from ..runtime.loggers import get_logger
from ..runtime.rate_limited_log import RateLimitedLog
from .acks import Acks
from .event_format import INSTANCE_SIZE, StoredRecord, UnreadableEventError, number_of, read_event
from .event_ref import Ticket
from .recovery import Recovery
from .registry import Registry, StoredFuture, Waiting, staying
from .take_lease import Taking

_log = get_logger("loghub.feeder")

#: The maximum number of events, and bytes, of one take.
BLOCK_EVENTS = 1024
BLOCK_BYTES = 1024 * 1024
#: How long a take waits for an event, seconds: also the longest delay of a stop.
PATIENCE = 0.1
#: While events arrive in quick succession: how long they gather before the next take, seconds, and the largest share of
#: the linger time that this may be. Waking up for each event costs its sender and the feeder more than feeding it.
GATHERING = 0.005
GATHERING_SHARE = 0.05
_BODY = attrgetter("body")
#: The pause after an error of the channel, seconds.
_PAUSE = 1.0


class Feeder:
    """Takes blocks of events from a channel, on a thread of its own, and feeds their records to the pipeline.

    :param pipeline: takes over the records, and resumes stopped streams.
    :param recovery: knows the numbers under which records of idempotent streams were sent before a restart.
    :param instance: the id of this producer, by which it recognizes records whose futures it may have.
    :param block_bytes: the maximum bytes of one take of several events.
    :param gathering: seconds between takes while events arrive in quick succession, unless a caller flushes; 0 for
        none.
    :ivar takings: the transactions with taken events that are not acknowledged; the last one takes.
    """

    def __init__(
        self,
        name: str,
        channel: Channel,
        clock: Clock,
        registry: Registry,
        acks: Acks,
        pipeline: Pipeline,
        instance: bytes,
        *,
        recovery: Recovery,
        block_bytes: int = BLOCK_BYTES,
        gathering: float = 0.0,
    ) -> None:
        self._name = name
        self._channel = channel
        self._clock = clock
        self._registry = registry
        self._acks = acks
        self._pipeline = pipeline
        self._recovery = recovery
        self._instance = instance
        self._errors = RateLimitedLog(clock)
        self._block, self._block_bytes = BLOCK_EVENTS, block_bytes
        self._gathering, self._fast, self._taken_at = gathering, False, -math.inf
        self.takings = [Taking(channel)]
        self._room = WaitingRoom(clock, LOOK_AGAIN)
        self._pause = WaitingRoom(clock)  # for the thread, while events gather
        self._lock = OwnedLock()  # guards everything below
        self._fed = 0
        self._idle = 0
        self._hurries = 0  # the number of calls that wait until all events are fed
        #: Streams to resume, each with the latch that is set once its completed events are acknowledged or parked.
        self._resuming: dict[Line, tuple[StreamKey, Latch | None]] = {}
        self._stopping = False
        self._ended = False
        self.thread = StageThread(f"{name}-feeder", self._loop)

    def run_once(self, patience: float = PATIENCE) -> bool:
        """Take and feed one block; return True if there was anything, or may be.

        :raises ProducerClosedError: the memory was closed; events that were not fed are still taken.
        """
        if self._resuming:
            self._resume_streams()
        if self._fast:
            self._gather()
        events = self._take(patience)
        if events is None:
            return True
        if not events:
            self._recovery.end_formed()
        fed = 0
        try:
            for event in events:
                if self._stopping:
                    break
                try:
                    self._feed_one(event)
                except ProducerClosedError:
                    raise
                except Exception:  # noqa: BLE001  # what one event provokes must not stop the others
                    self._keep_back(event)
                fed += 1
        finally:
            self._note(fed, idle=not events)
        self._fast = bool(events and self._gathering) and self._more_is_coming(events)
        return bool(events)

    def _gather(self) -> None:
        """Pause while further events arrive, so that no sender has to wake this thread for each."""
        self._pause.wait_until(lambda: self._hurries or self._stopping, Deadline.after(self._clock, self._gathering))

    def _more_is_coming(self, events: Sequence[Event]) -> bool:
        """True if more events will follow within moments, and this take did not fill a block: waiting then saves
        wake-ups.
        """
        before, self._taken_at = self._taken_at, self._clock.monotonic()
        fast = len(events) > 1 or self._taken_at - before < self._gathering
        full = len(events) >= self._block or 2 * sum(map(len, map(_BODY, events))) > self._block_bytes
        return fast and not full

    def _loop(self) -> None:
        try:
            while not self._stopping:
                self._guarded_turn()
        except ProducerClosedError:
            pass  # the memory is closed: the closing thread closes everything
        except ChannelClosedError as error:
            if not self._stopping:
                _log.error(
                    "%s: the channel was closed by other code; the producer delivers nothing more from it: %s",
                    self._name,
                    error,
                )
                self._leave_all()
        with self._lock:
            self._ended = True
        self._room.wake_all()

    def _guarded_turn(self) -> None:
        try:
            self.run_once()
        except (ChannelClosedError, ProducerClosedError):
            raise
        except Exception as error:  # noqa: BLE001  # a channel may be user code
            if self._errors.due(type(error).__name__, 1) is not None:
                own = isinstance(error, ChannelError)
                message = "%s: the channel cannot be read; retrying: %s"
                _log.error(message, self._name, error, exc_info=None if own else error)
            self._room.wait_until(lambda: self._stopping, Deadline.after(self._clock, _PAUSE))

    def _take(self, patience: float) -> list[Event] | None:
        """Take events; None if the transaction was full: the next take uses a new one."""
        taking = self.takings[-1]
        try:
            return taking.take(self._block, self._block_bytes, patience)
        except TransactionFullError as error:
            if taking.unused:  # not even one block fits
                self._block = max(1, min(error.capacity, self._block // 2))
            else:
                taking.retire()
                self.takings = [*(old for old in self.takings if not old.ended), Taking(self._channel)]
        return None

    def _keep_back(self, event: Event) -> None:
        _log.exception("%s: a bug: event %s stays in the channel", self._name, event.sequence)
        self._acks.counters.add("kept_back", 1)

    def _feed_one(self, event: Event) -> None:
        taking = self.takings[-1]
        try:
            record = read_event(event)
        except UnreadableEventError as error:
            _log.error("%s: event %s of the channel holds no record: %s", self._name, event.sequence, error)
            self._acks.unreadable(taking, event, str(error))
            return
        future = None
        if record.ident[:INSTANCE_SIZE] == self._instance:
            future = self._registry.claim(number_of(record.ident))
        waiting = None if future is None else future._holder
        ticket = Ticket(taking, event.sequence or 0, record.ident, future, record.position)
        try:
            self._feed_in_place(record, ticket)
        except StreamStoppedError as error:
            self._acks.park(record.key, (ticket,))
            if future is not None:
                self._keep_or_fail(record.key, future, error)
            return
        except BaseException as error:
            if future is not None:
                self._keep_or_leave(future, error)
            raise
        if isinstance(waiting, Waiting):
            self._registry.adopted(waiting)

    def _feed_in_place(self, record: StoredRecord, ticket: Ticket) -> None:
        """Feed a record, unless it was completed before a restart."""
        recovery, key, position = self._recovery, record.key, ticket.position
        if recovery.lasts and ticket.sequence > recovery.lasts[0][0]:
            recovery.seal_passed(ticket.sequence)
        if not key.order.startswith(IDEMPOTENT):
            self._feed(record, ticket, None)
            return
        intent = recovery.intent_of(key, position)
        if intent is not None and position < intent.first:
            self._acks.settled(ticket)
            return
        try:
            self._feed(record, ticket, intent.before if intent is not None else None)
        except (ProducerClosedError, StreamStoppedError):
            raise
        except Exception:
            recovery.distrust(key)
            raise
        if intent is not None:
            recovery.fed(key, position)

    def _feed(self, stored: StoredRecord, ticket: Ticket, before: SentBefore | None) -> None:
        piece = Piece(stored.key, stored.record, stored.logs)
        self._pipeline.admission.feed(piece, ticket, number=stored.number, before=before)

    def _keep_or_fail(self, key: StreamKey, future: StoredFuture, error: StreamStoppedError) -> None:
        """Complete the future of a parked record, unless the stream is about to be resumed."""
        if self.is_resuming(key):
            self._registry.restore(future)
        else:
            self._registry.leave((future,), staying(stopped_attempt(error)))
            self._registry.adopted()

    def _keep_or_leave(self, future: StoredFuture, error: BaseException) -> None:
        """Handle a record that could not be fed: the close of the producer keeps it, any other reason is a bug."""
        if isinstance(error, ProducerClosedError) or not isinstance(future._holder, Waiting):
            self._registry.restore(future)
            return
        message = (
            f"a bug: {type(error).__name__}: {error}: the record stays in the channel, for the next producer on it"
        )
        self._registry.leave((future,), self._unfed("InternalError", message))
        self._registry.adopted()

    def _leave_all(self) -> None:
        """Complete all futures: the channel is closed, so their records will never be taken."""
        message = (
            "the channel was closed before the record could be delivered: what it keeps is delivered by the next "
            "producer on it"
        )
        self._registry.leave_all(lambda: self._unfed("LeftInChannel", message))

    def _unfed(self, code: str, message: str) -> Result:
        now = int(self._clock.time() * 1000)
        return staying(Attempt(success=False, error_code=code, error_message=message, timestamp_ms=now))

    def resume(self, key: StreamKey) -> None:
        """Take the parked events of a stopped stream again, soon, and resume it."""
        with self._lock:
            self._resuming[key.line] = key, None

    def is_resuming(self, key: StreamKey) -> bool:
        """True if the stream is about to be resumed."""
        return key.line in self._resuming

    def _resume_streams(self) -> None:
        with self._lock:
            resuming = list(self._resuming.values())
        for key, barrier in resuming:
            if barrier is None:
                # The resuming thread may be faster than the thread that completes the batches behind the failure.
                if not any(batch.key.line == key.line for batch in self._pipeline.accumulator.incomplete()):
                    # The failed events may be going to the dead letters, or back.
                    self._set_resuming(key, self._acks.handled())
            elif barrier.is_set():
                self._give_back(key)
                self._pipeline.resume(key)
                self._end_resuming(key)

    def _set_resuming(self, key: StreamKey, barrier: Latch) -> None:
        with self._lock:
            self._resuming[key.line] = key, barrier

    def _end_resuming(self, key: StreamKey) -> None:
        with self._lock:
            del self._resuming[key.line]
        self._room.wake_all()

    def _give_back(self, key: StreamKey) -> None:
        """Return the parked events of a stream to the channel.

        :raises ChannelError: the channel could not take all of them; the others stay parked.
        """
        parking = self._acks.parking
        for taking, sequences in parking.parked(key.line):
            taking.give_back(sequences)
            parking.left(key.line, taking)
            self._acks.counters.add("kept_back", -len(sequences))
            with self._lock:
                self._fed -= len(sequences)

    def _note(self, fed: int, *, idle: bool) -> None:
        with self._lock:
            self._fed += fed
            self._idle += idle
        if self._room:
            self._room.wake_all()

    @property
    def fed(self) -> int:
        """The number of events fed since the start."""
        return self._fed

    def wait_fed(self, target: int, deadline: Deadline) -> bool:
        """Wait until so many events in all were fed; return True if they were.

        Also returns True when the channel is empty: it may have dropped a damaged event, or have reported a wrong
        number.
        """
        # The current take may have begun before the last event came.
        idle = self._hurry(1) + 2
        try:
            self._pause.wake_all()
            return self._room.wait_until(lambda: self._is_fed(target, idle), deadline)
        finally:
            self._hurry(-1)

    def _hurry(self, calls: int) -> int:
        """Change the number of calls that wait until all is fed; return how often the channel was found empty."""
        with self._lock:
            self._hurries += calls
            return self._idle

    def _is_fed(self, target: int, idle: int) -> bool:
        with self._lock:
            return self._ended or (not self._resuming and (self._fed >= target or self._idle >= idle))

    def stop(self) -> None:
        """Let the thread end before the next event."""
        with self._lock:
            self._stopping = True
        self._room.wake_all()
        self._pause.wake_all()
