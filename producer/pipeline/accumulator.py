"""LogAccumulator: the open batch of every stream, and the list of all batches that are not settled.

Senders append; a batch that is full is handed on by the sender who filled it, one that lingered by the mover. A stream
is remembered only while it has a batch under way, and a little longer for its context (pack id) and its counters. The
file is long since whatever one lock guards stands in one place.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from ..clock import Clock, Deadline, WaitingRoom
from ..config import ProducerConfig
from ..errors import ProducerClosedError, StreamStoppedError
from ..interfaces import Record, SequenceId
from ..numbering import Numbering
from ..records import SEQUENCED, StreamKey, hash_key_of
from ..results import SendFuture
from ..wire.log_group import LogEncoder
from .batch import BatchState, ProducerBatch, Sender, overhead_of_batch
from .doubt import Doubt, SentBefore
from .memory import MemoryBudget
from .open_run import OpenRun, RunLimits
from .stopped_streams import StoppedStreams
from .stream_order import StreamOrder
from .stream_state import StreamState

_log = logging.getLogger("producer.accumulator")

#: Streams without a batch under way that are remembered, and for how long, seconds.
MAX_IDLE_STREAMS = 4096
IDLE_STREAM_SECONDS = 60.0
#: How long a batch that was in flight before a restart may take to be formed again, seconds. All of them were in memory
#: together before, so they should fit again; should they not, this lets them go.
_FORMING_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class StreamCounts:
    """Counters of one stream since it was last remembered anew: logs."""

    accepted: int
    delivered: int
    failed: int


class LogAccumulator:
    """See the module.

    :param submit: takes a batch that is ready to be sent; called outside the lock.
    :param tail_size: the size of a batch's body without records, by stream and pack id, bytes.
    :param budget: where opened batches that were not needed are given back to; and where runs take their memory.
    :param lock: the budget's, which guards everything here as well.
    :param batch_type: what batches are made of.
    :param ordered: of every stream one batch is on its way at a time, not only of ordered ones; see
        :class:`StreamOrder`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        submit: Callable[[ProducerBatch], None],
        tail_size: Callable[[StreamKey, str | None], int],
        budget: MemoryBudget,
        lock: threading.Lock,
        *,
        batch_type: type[ProducerBatch] = ProducerBatch,
        ordered: bool = False,
    ) -> None:
        self._config = config
        self._clock = clock
        self._submit = submit
        self._tail_size = tail_size
        self._budget, self._refund = budget, budget.release
        self._batch_type = batch_type
        self._linger = config.linger_ms / 1000
        self._threshold_bytes = config.batch_size_threshold_in_bytes
        self._threshold_count = config.batch_count_threshold
        self._run_limits = RunLimits(lock, budget, clock.time, self._threshold_bytes, self._threshold_count)
        self._settled = WaitingRoom(clock)
        self._lock = lock  # guards everything below, and the budget: the most frequent step touches both
        self._open: OrderedDict[StreamKey, ProducerBatch] = OrderedDict()  # in the order of creation: of expiry, too
        self._forming: dict[StreamKey, ProducerBatch] = {}
        self._given_up: set[str] = set()
        self._incomplete: OrderedDict[ProducerBatch, None] = OrderedDict()
        self._streams: dict[StreamKey, StreamState] = {}
        self._idle: OrderedDict[StreamKey, StreamState] = OrderedDict()  # those with nothing alive, longest idle first
        self._all_ordered = ordered
        self._order = StreamOrder()
        self._stopped = StoppedStreams()
        self._next_serial = 0
        self._accepted = 0  # in batches that take no more records
        self._closed = False

    def has_open(self, key: StreamKey) -> bool:
        """Whether the stream has an open batch at this moment: a guess, which :meth:`append` checks."""
        return key in self._open

    @property
    def all_open(self) -> bool:
        """Whether every batch still takes records, so that none will be settled soon: a guess."""
        return len(self._open) + len(self._forming) == len(self._incomplete)

    def open_bytes(self) -> int:
        """The memory that open batches hold, bytes; also those that a sender took out and, interrupted, never handed
        on.
        """
        with self._lock:
            return sum(batch.held for batch in self._incomplete if batch.state is BatchState.OPEN)

    def append(
        self,
        key: StreamKey,
        record: Record,
        logs: int,
        sender: Sender,
        charge: int,
        opening: int,
        number: int | None = None,
        *,
        paid: bool = True,
    ) -> SendFuture | None:
        """Add one send to its stream's open batch.

        :param sender: as the batch's ``add`` takes it.
        :param charge: the memory of the record, bytes; the batch owes them from now on.
        :param opening: bytes taken to open a new batch, or 0; given back if there is room in the open one.
        :param number: of a stream with a ``SequenceKey``, if it was given before; None to take the next one.
        :param paid: whether ``charge`` and ``opening`` were taken from the budget before; else what is needed is taken
            here, if nobody has to wait for it, and ``opening`` says nothing.
        :returns: the future; None if it has to be paid first, or if a new batch is needed and ``opening`` is 0: nothing
            was done then.
        :raises ProducerClosedError: after :meth:`close`.
        :raises StreamStoppedError: a batch of the ordered stream has failed for good.
        """
        without_room = full = None
        with self._lock:
            self._must_accept(key)
            batch = self._open.get(key)
            fits = batch is not None and batch.has_room(len(record), logs)
            if not paid:
                opening = 0 if fits else overhead_of_batch(key)
            if not (fits or opening) or not (paid or self._budget.has(charge + opening)):
                return None
            if batch is None or not fits:
                without_room = None if batch is None else self._take(key)
                batch = self._begin_batch(key, number)
                charge, opening = charge + opening, 0
            future = batch.add(record, logs, sender, charge)
            if not paid:  # no call since the batch owes it: both happen, or neither
                self._budget.used += charge
            if self._is_full(batch):
                full = self._take(key)
        if opening:
            self._refund(opening)
        if without_room is not None:
            self._submit(without_room)
        if full is not None:
            self._submit(full)
        return future

    def _must_accept(self, key: StreamKey) -> None:
        if self._closed:
            raise ProducerClosedError("the producer is closed")
        if self._stopped.any:
            self._must_go_on(key)

    def _begin_batch(self, key: StreamKey, number: int | None) -> ProducerBatch:
        sequence = _sequence_of(key, number) if key.order.startswith(SEQUENCED) else None
        batch = self._open[key] = self._new_batch(key)
        batch.sequence = sequence
        return batch

    def _is_full(self, batch: ProducerBatch) -> bool:
        # One with a number of its own takes no other record, and does not linger.
        alone = batch.key.order.startswith(SEQUENCED)
        return alone or batch.size >= self._threshold_bytes or batch.log_count >= self._threshold_count

    def _new_batch(self, key: StreamKey) -> ProducerBatch:
        now = self._clock.monotonic()
        stream = self._stream(key)
        pack_id = f"{stream.context}-{stream.next_number:X}" if self._config.generate_pack_id else None
        stream.next_number += 1
        batch = self._batch_type(
            key,
            stream=stream,
            serial=self._next_serial,
            pack_id=pack_id,
            tail_size=self._tail_size(key, pack_id),
            created_at=now,
            max_reserved_attempts=self._config.max_reserved_attempts,
        )
        self._next_serial += 1
        stream.alive += 1
        self._incomplete[batch] = None
        if self._in_line(batch):
            self._order.opened(batch)
        return batch

    def _in_line(self, batch: ProducerBatch) -> bool:
        return self._all_ordered or batch.key.order != ""

    def is_forming(self, key: StreamKey) -> bool:
        """Whether :meth:`form` has begun a batch of the stream: a guess."""
        return key in self._forming

    def form(
        self,
        key: StreamKey,
        record: Record,
        logs: int,
        sender: Sender,
        charge: int,
        opening: int,
        before: SentBefore,
    ) -> SendFuture | None:
        """As :meth:`append`, to the batch that is sent again after a restart: neither full nor lingering it is handed
        on, but by :meth:`formed`.

        :param before: what it was sent under.
        """
        with self._lock:
            if self._closed:
                raise ProducerClosedError("the producer is closed")
            if self._stopped.any:
                self._must_go_on(key)
            given_up = before.sequence.key in self._given_up
            if not given_up:
                batch = self._forming.get(key)
                if batch is None:
                    if not opening:
                        return None
                    batch = self._begin_forming(key, before)
                    charge, opening = charge + opening, 0
                future = batch.add(record, logs, sender, charge)
        if given_up:  # others of its records were sent under a new key: the old one must not be used again
            return self.append(key, record, logs, sender, charge, opening)
        if opening:
            self._refund(opening)
        return future

    def _begin_forming(self, key: StreamKey, before: SentBefore) -> ProducerBatch:
        batch = self._forming[key] = self._new_batch(key)
        batch.sequence = batch.stream.sequence = before.sequence
        batch.forming = batch.noted = True
        batch.doubt = Doubt(batch, shorter=before.shorter)
        return batch

    def formed(self, key: StreamKey) -> ProducerBatch | None:
        """The batch that :meth:`form` filled, out of the accumulator; None if there is none."""
        with self._lock:
            return self._take_formed(key) if key in self._forming else None

    def _take_formed(self, key: StreamKey) -> ProducerBatch:
        batch = self._forming.pop(key)
        batch.forming = False
        batch.stream.accepted += batch.log_count
        self._accepted += batch.log_count
        return batch

    def give_up_forming(self, before: float = math.inf) -> list[ProducerBatch]:
        """The batches that :meth:`form` began before that monotonic time, out of the accumulator, to be sent under a
        new key: they do not become complete.
        """
        with self._lock:
            given_up = [batch for batch in self._forming.values() if batch.created_at < before]
            for batch in given_up:
                self._take_formed(batch.key)
                self._given_up.add(batch.sequence.key if batch.sequence is not None else "")
                batch.sequence = batch.stream.sequence = None
                batch.noted, batch.doubt = False, None
        for batch in given_up:
            _log.warning(
                "%s/%s: a batch that was in flight before the restart cannot be formed again (its other records do not "
                "come, or the memory is too small for it): it is sent under a new key, and may be stored twice",
                *batch.key[:2],
            )
        return given_up

    def _stream(self, key: StreamKey) -> StreamState:
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = StreamState(secrets.token_hex(8).upper())
        else:
            self._idle.pop(key, None)
        return stream

    def _forget_idle(self, now: float) -> None:
        while self._idle:
            key, stream = next(iter(self._idle.items()))
            if len(self._idle) <= MAX_IDLE_STREAMS and now - stream.idle_since < IDLE_STREAM_SECONDS:
                return
            del self._idle[key], self._streams[key]

    def open_run(self, key: StreamKey, encoder: LogEncoder) -> OpenRun | None:
        """The end of the stream's open batch, for logs of shapes that ``encoder`` knows; None if it has no open
        batch.
        """
        with self._lock:
            batch = self._open.get(key)
            if batch is None:
                return None
            if batch.run is None:
                batch.run = OpenRun(batch, encoder, self._run_limits)
            return batch.run

    def _take(self, key: StreamKey) -> ProducerBatch:
        batch = self._open[key]
        batch.end_run()  # first: an interrupt in between must leave nobody who adds to a batch that is out
        # No calls from here on: all of this happens.
        batch.stream.accepted += batch.log_count
        self._accepted += batch.log_count
        del self._open[key]
        return batch

    def take_expired(self, now: float) -> tuple[list[ProducerBatch], float]:
        """The batches that lingered long enough, out of the accumulator, and the seconds until the next one has."""
        expired: list[ProducerBatch] = []
        wait = self._linger
        with self._lock:
            for batch in self._open.values():
                left = batch.created_at + self._linger - now
                if left > 0:
                    wait = left
                    break
                expired.append(batch)
            for batch in expired:
                self._take(batch.key)
            self._forget_idle(now)
        if self._forming:
            expired += self.give_up_forming(now - _FORMING_SECONDS)
        return expired, wait

    def take_all(self) -> tuple[list[ProducerBatch], int]:
        """Every open batch, out of the accumulator, and the serial that the next new batch will have."""
        with self._lock:
            return [self._take(key) for key in list(self._open)], self._next_serial

    def close(self) -> list[ProducerBatch]:
        """Refuse appends from now on; returns every open batch."""
        with self._lock:
            self._closed = True
            formed = [self._take_formed(key) for key in list(self._forming)]
        return formed + self.take_all()[0]

    def may_go(self, batch: ProducerBatch) -> bool:
        """Whether ``batch``, which takes no more records, may be sent now; else :meth:`forget` returns it one day."""
        if not self._in_line(batch):
            return True
        with self._lock:
            return self._order.ready(batch)

    def freeze(self) -> None:
        """Let no batch go any more that waits behind another one of its stream."""
        with self._lock:
            self._order.freeze()

    def stop(self, batch: ProducerBatch, error: StreamStoppedError) -> list[ProducerBatch]:
        """``batch`` of an ordered stream is about to fail for good: refuse what would come behind it.

        :returns: the batches that wait behind it, to be failed.
        """
        with self._lock:
            self._stopped.add(batch.key.line, error)
            behind = self._order.stop(batch)
            for waiting in behind:
                if self._open.get(waiting.key) is waiting:
                    self._take(waiting.key)
        return behind

    def stopped(self, key: StreamKey) -> StreamStoppedError | None:
        """Why the stream is stopped; None if it is not."""
        if not self._stopped.any:
            return None
        with self._lock:
            return self._stopped.get(key.line)

    def resume(self, key: StreamKey) -> None:
        """Let a stopped stream go on."""
        with self._lock:
            self._stopped.remove(key.line)

    def _must_go_on(self, key: StreamKey) -> None:
        error = self._stopped.get(key.line)
        if error is not None:
            raise error

    def forget(self, batch: ProducerBatch, *, delivered: bool | None) -> ProducerBatch | None:
        """``batch`` is settled.

        :param delivered: None for one that was neither delivered nor given up.
        :returns: the batch that may be sent now that this one is out of its way, if there is one.
        """
        with self._lock:
            self._incomplete.pop(batch, None)
            successor = self._order.gone(batch) if self._in_line(batch) else None
            stream = batch.stream
            if delivered:
                stream.delivered += batch.log_count
            elif delivered is False:
                stream.failed += batch.log_count
            else:
                stream.accepted -= batch.log_count
            stream.alive -= 1
            if not stream.alive:
                stream.idle_since = self._clock.monotonic()
                self._idle[batch.key] = stream
                self._forget_idle(stream.idle_since)
        if self._settled:
            self._settled.wake_all()
        return successor

    def replace(self, batch: ProducerBatch, halves: tuple[ProducerBatch, ProducerBatch]) -> None:
        """``batch`` was split in two."""
        with self._lock:
            for half in halves:
                self._incomplete[half] = None
            self._incomplete.pop(batch, None)
            batch.stream.alive += 1
            if self._in_line(batch):
                self._order.cut(batch, halves)

    def wait_settled(self, before: int, deadline: Deadline) -> int:
        """Wait until every batch with a serial below ``before`` is settled; returns how many are not in time."""
        if self._settled.wait_until(lambda: self._all_settled(before), deadline):
            return 0
        with self._lock:
            return sum(1 for batch in self._incomplete if batch.serial < before)

    def _all_settled(self, before: int) -> bool:
        with self._lock:
            # The first is the oldest but for halves of split batches, which stand behind younger ones.
            return not any(batch.serial < before for batch in self._incomplete)

    def incomplete(self) -> list[ProducerBatch]:
        """Every batch that is not settled, oldest first."""
        with self._lock:
            return list(self._incomplete)

    def incomplete_in_child(self) -> list[ProducerBatch]:
        """As :meth:`incomplete`, after a fork, without the lock, which a thread of the parent may have held."""
        return list(self._incomplete)

    def oldest_age(self) -> float | None:
        """How long ago the oldest batch that is not settled got its first record, seconds; None if there is none."""
        with self._lock:
            oldest = next(iter(self._incomplete), None)
        return None if oldest is None else max(0.0, self._clock.monotonic() - oldest.created_at)

    @property
    def accepted(self) -> int:
        """Logs accepted since the start."""
        with self._lock:
            return self._accepted + sum(
                batch.log_count for batches in (self._open, self._forming) for batch in batches.values()
            )

    def stream_counts(self) -> dict[StreamKey, StreamCounts]:
        """Counters of every stream that is remembered."""
        with self._lock:
            return {
                key: StreamCounts(
                    stream.accepted + (self._open[key].log_count if key in self._open else 0),
                    stream.delivered,
                    stream.failed,
                )
                for key, stream in self._streams.items()
            }


def _sequence_of(key: StreamKey, number: int | None) -> SequenceId:
    """The hash key and the number of a piece, which is the next one of its handle if none is given."""
    if number is None:
        if not isinstance(key.order, Numbering):
            raise RuntimeError(f"nobody numbers the pieces of {key}")  # a bug
        number = key.order.take()
    return SequenceId(hash_key_of(key.order), number)
