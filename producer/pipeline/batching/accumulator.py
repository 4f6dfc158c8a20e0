"""LogAccumulator: holds the batches of all streams from their first record to their result.

Records are appended to the open batch of their stream. A batch that is full, or has lingered, is sealed: it accepts no
more records, and goes to the IO threads, or waits behind another batch of its ordered stream. A stream is remembered
while it has a batch, and a little longer for its context (pack id) and its counters. The file is long because it holds
everything that one lock guards.
"""

from __future__ import annotations

import math
import secrets
from collections import OrderedDict
from typing import NamedTuple

from ...model.config import ProducerConfig
from ...model.errors import ProducerClosedError, StreamStoppedError
from ...model.futures import SendFuture
from ...model.interfaces import Record, SequenceId, Sink
from ...model.records import SEQUENCED, StreamKey, hash_key_of
from ...model.sequence import Numbering
from ...runtime.clock import LOOK_AGAIN, Clock, Deadline, WaitingRoom
from ...runtime.compiled import either
from ...runtime.loggers import get_logger
from ...wire.text import fallback_of
from ..threads import wait_until_free
from .attempt_history import AttemptHistory
from .batch import ProducerBatch, Recipient, overhead_of_batch
from .cut import CutRule
from .memory import MemoryBudget, Reservation
from .open_records import RECORD_OVERHEAD
from .open_records import OpenRecords as PureOpenRecords
from .ready_batches import ReadyBatches
from .stopped_streams import StoppedStreams
from .stream_order import StreamOrder
from .stream_state import StreamState
from .unconfirmed import SentBefore, Unconfirmed

_log = get_logger("loghub.accumulator")

#: The native or the pure implementation of an open batch's records.
OpenRecords = either(f"{__package__}._open_records", "OpenRecords", PureOpenRecords)

#: How many streams without a batch are remembered, and for how long, seconds.
MAX_IDLE_STREAMS = 4096
IDLE_STREAM_SECONDS = 60.0
#: If no batch was opened for so many seconds, the mover searches for lingered batches only at this interval.
QUIET_SECONDS = 2.0
#: When a batch has lingered long enough, other batches are sealed with it, up to this share of the linger time and
#: these seconds too early. So many small batches do not wake a thread each.
ALONG_SHARE, ALONG_SECONDS = 0.1, 0.01
#: The longest linger of a producer's first batch, seconds: a wrong endpoint or key shows soon.
FIRST_LINGER_SECONDS = 0.5
#: How long the rebuild of a batch that was in flight before a restart may take, seconds. All of these batches were in
#: memory together, so they should fit again. If they do not, this limit releases them.
_FORMING_SECONDS = 60.0


class Piece(NamedTuple):
    """One send, encoded.

    :ivar key: the stream.
    :ivar record: the logs, joined.
    :ivar logs: the number of logs.
    """

    key: StreamKey
    record: Record
    logs: int


class LogAccumulator:
    """The batches that are not completed, of every stream.

    :param sink: gives the size of a batch's body without records; called without the lock.
    :param budget: the memory that batches take. Its lock guards everything here as well, since the most frequent step
        needs both.
    :param cut: says when a batch is full.
    :param ready: the queue for sealed batches.
    :param kept: True if each record has an origin. Then every stream has one batch in flight, not only ordered streams.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        sink: Sink,
        budget: MemoryBudget,
        cut: CutRule,
        ready: ReadyBatches,
        *,
        kept: bool = False,
    ) -> None:
        self._config = config
        self._clock = clock
        self._thresholds = cut.thresholds  # one object, shared by all batches
        self._sink = sink
        self._budget = budget
        self._cut = cut
        self._ready = ready
        self._fallback = fallback_of(config.default, config.on_unencodable)
        self._settled = WaitingRoom(clock, LOOK_AGAIN)
        self._lock = budget.lock  # guards everything below
        self._linger = min(config.linger_ms / 1000, FIRST_LINGER_SECONDS)  # until the first batch is sealed
        self._open: OrderedDict[StreamKey, ProducerBatch] = OrderedDict()  # in the order of creation, thus of expiry
        self._forming: dict[StreamKey, ProducerBatch] = {}
        self._abandoned: set[str] = set()
        self._incomplete: OrderedDict[ProducerBatch, None] = OrderedDict()
        #: A serial for each thread in wait_settled, which waits for all batches with lower serials.
        self._awaited: list[int] = []
        self._streams: dict[StreamKey, StreamState] = {}
        self._idle: OrderedDict[StreamKey, StreamState] = OrderedDict()  # streams without a batch, longest idle first
        self._kept = kept
        self._order = StreamOrder()
        self._stopped = StoppedStreams()
        self._next_serial = 0
        # the time when the newest batch was opened; at first the time of construction
        self._youngest = clock.monotonic()
        self._accepted = 0  # in sealed batches
        #: True if the mover sleeps longer than a batch may linger: the thread that opens a batch wakes it.
        self.unwatched = False
        self._closed = False

    def takes(self, key: StreamKey) -> bool:
        """True if the stream has an open batch: a guess, which :meth:`add` checks under the lock."""
        return key in self._open or key in self._forming

    @property
    def all_open(self) -> bool:
        """True if every batch is open, so that none will complete soon: a guess."""
        return len(self._open) + len(self._forming) == len(self._incomplete)

    def draft(self, key: StreamKey) -> ProducerBatch:
        """Return the next batch of a stream; it is unused until :meth:`add` opens it with a record."""
        stream = self._streams.get(key) or StreamState(secrets.token_hex(8).upper())
        number = stream.next_number
        pack_id = f"{stream.context}-{number:X}" if self._config.generate_pack_id else None
        draft = ProducerBatch(
            key,
            stream=stream,
            serial=number,  # the number within its stream, until the batch is opened
            pack_id=pack_id,
            tail_size=self._sink.tail_size(key, pack_id),
            created_at=self._clock.monotonic(),
            origins=[] if self._kept else None,
        )
        draft.open = OpenRecords(
            draft, self._budget, self._clock, self._thresholds, draft.tail_size, self._fallback, self._kept
        )
        return draft

    def add(
        self,
        piece: Piece,
        recipient: Recipient,
        draft: ProducerBatch | None,
        memory: Reservation | None,
        *,
        number: int | None = None,
        before: SentBefore | None = None,
    ) -> SendFuture | int:
        """Append one send to the batch of its stream, which accounts for its memory from then on.

        :param recipient: as for :meth:`ProducerBatch.add`.
        :param draft: the batch to open if there is none with room.
        :param memory: the bytes reserved before; missing bytes are taken from the budget, if they are free.
        :param number: the sequence number of a piece whose sender chose it; None to take the next one.
        :param before: the key and number that the record was sent under before a restart. Its batch does not fill or
            linger; it is sealed by :meth:`seal_formed`.
        :returns: the future; or, if nothing was done, a number. It is the bytes that the caller has to reserve first,
            or 0 if the draft is outdated and the caller has to make another one.
        :raises ProducerClosedError: :meth:`close` was called.
        :raises StreamStoppedError: a batch of the ordered stream failed permanently.
        """
        key, record, logs = piece
        wait_until_free(self._lock)
        with self._lock:
            self._check_open(key)
            # The other records of an abandoned batch were sent under a new key: the old key must not be used again.
            forms = before is not None and before.sequence.key not in self._abandoned
            batch = (self._forming if forms else self._open).get(key)
            if batch is not None and batch.has_room(len(record), logs):
                charge = self._charge_of(piece)
                if not self._take(charge, memory):
                    return charge
                future = self._append(batch, piece, recipient, charge)
                if future is not None:
                    if not forms and self._cut.is_full(batch.size, batch.log_count):
                        self._seal(batch)
                    return future
            if draft is None or not self._is_current(draft):
                return 0
            charge = self._charge_of(piece, overhead_of_batch(key))
            number = self._number_of(key, number)
            if not self._take(charge, memory):
                return charge
            return self._open_with(draft, piece, recipient, charge, number, before if forms else None)

    def _check_open(self, key: StreamKey) -> None:
        if self._closed:
            raise ProducerClosedError("the producer is closed")
        error = self._stopped.get(key.line) if self._stopped.any else None
        if error is not None:
            raise error

    def _is_current(self, draft: ProducerBatch) -> bool:
        stream = draft.stream
        return self._streams.get(draft.key, stream) is stream and draft.serial == stream.next_number

    def _charge_of(self, piece: Piece, opening: int = 0) -> int:
        """Return the memory that a send takes, bytes; at most the whole budget, which was larger when the send was
        accepted.
        """
        charge = len(piece.record) + RECORD_OVERHEAD + opening
        limit = self._budget.limit
        return charge if charge < limit else limit

    def _take(self, charge: int, memory: Reservation | None) -> bool:
        """Take the memory of a piece, first from ``memory``; return True if there was enough."""
        reserved = 0 if memory is None else min(charge, memory.held)
        if reserved < charge and not self._budget.take(charge - reserved):
            return False
        if memory is not None:
            memory.spend(reserved)
        return True

    def _append(self, batch: ProducerBatch, piece: Piece, recipient: Recipient, charge: int) -> SendFuture | None:
        """Append a piece to a batch, and account for its memory; None if it has no room. The caller holds the lock."""
        future = batch.add(piece.record, piece.logs, recipient, charge)
        if future is None:
            self._budget.change(-charge)
            self._budget.serve()
        return future

    def _open_with(
        self,
        draft: ProducerBatch,
        piece: Piece,
        recipient: Recipient,
        charge: int,
        number: int | None,
        formed: SentBefore | None,
    ) -> SendFuture:
        """Open ``draft`` with its first record, in place of a batch without room. The caller holds the lock.

        :param number: the sequence number of the piece, if its sender chose it.
        :param formed: the key and number of the batch before a restart.
        """
        key = draft.key
        future = self._append(draft, piece, recipient, charge)
        if future is None:
            raise RuntimeError("a draft takes no records")  # a bug
        if isinstance(key.order, Numbering) and number is not None:
            key.order.next = number + 1
        draft.sequence = _sequence_of(key, number, formed)
        draft.unconfirmed = None if formed is None else Unconfirmed(draft, shorter=formed.shorter)
        if formed is None and key in self._open:
            self._seal(self._open[key])
        try:
            self._register(draft, forms=formed is not None)
        except BaseException:  # raised by a signal handler
            self._unregister(draft)
            raise
        # A batch with a number of its own takes no other record, and does not linger.
        if formed is None and (number is not None or self._cut.is_full(draft.size, draft.log_count)):
            self._seal(draft)
        return future

    def _register(self, draft: ProducerBatch, *, forms: bool) -> None:
        """Register a batch that has its first record. The caller holds the lock."""
        key, stream = draft.key, draft.stream
        draft.serial = self._next_serial
        draft.created_at = max(draft.created_at, self._youngest)  # another thread may have opened a later draft first
        if self._in_line(draft):
            self._order.opened(draft)
        self._idle.pop(key, None)
        self._streams[key] = stream  # a new stream, or one that was forgotten meanwhile
        self._incomplete[draft] = None
        if forms:
            stream.sequence = draft.sequence
            draft.forming = draft.noted = True
            self._forming[key] = draft
        else:
            self._open[key] = draft
        self._youngest = draft.created_at
        self._next_serial += 1
        stream.next_number += 1
        stream.alive += 1

    def _unregister(self, draft: ProducerBatch) -> None:
        """Undo an incomplete :meth:`_register`. The caller holds the lock."""
        self._order.gone(draft)
        self._incomplete.pop(draft, None)
        for taking in (self._open, self._forming):
            if taking.get(draft.key) is draft:
                del taking[draft.key]
        self._budget.change(-draft.held)

    def _in_line(self, batch: ProducerBatch) -> bool:
        return self._kept or batch.key.order != ""

    @staticmethod
    def _number_of(key: StreamKey, number: int | None) -> int | None:
        """Return the sequence number of a piece: the given one, else the next of its handle.

        None for a stream without a ``SequenceKey``.
        """
        if not key.order.startswith(SEQUENCED) or number is not None:
            return number
        if not isinstance(key.order, Numbering):
            raise RuntimeError(f"the stream {key} has no numbering")  # a bug
        key.order.check()
        return key.order.next

    def _forget_idle(self, now: float) -> None:
        while self._idle:
            key, stream = next(iter(self._idle.items()))
            if len(self._idle) <= MAX_IDLE_STREAMS and now - stream.idle_since < IDLE_STREAM_SECONDS:
                return
            del self._idle[key], self._streams[key]

    def _seal(self, batch: ProducerBatch) -> None:
        """Seal a batch. The caller holds the lock."""
        taking = self._forming if batch.forming else self._open
        batch.seal()
        batch.history = AttemptHistory(self._config.max_reserved_attempts)
        held, logs = batch.held, batch.log_count
        ready = not self._in_line(batch) or self._order.is_first(batch)
        del taking[batch.key]
        batch.forming = False
        self._budget.sealed += held
        batch.stream.accepted += logs
        self._accepted += logs
        self._linger = self._config.linger_ms / 1000
        if ready:
            self._ready.batches.append(batch)
        else:
            self._order.waiting.add(batch)

    def seal_formed(self, key: StreamKey) -> None:
        """Seal the recovered batch of a stream, if it has one: all its records are there."""
        with self._lock:
            batch = self._forming.get(key)
            if batch is not None:
                self._seal(batch)
        self._ready.wake()

    def abandon_forming(self, before: float = math.inf) -> None:
        """Seal recovered batches that were begun before that monotonic time; they will be sent under a new key."""
        with self._lock:
            abandoned = list(filter(lambda batch: batch.created_at < before, self._forming.values()))
            for batch in abandoned:
                self._abandoned.add(batch.sequence.key if batch.sequence is not None else "")
                batch.sequence = batch.stream.sequence = None
                batch.noted, batch.unconfirmed = False, None
                self._seal(batch)
        self._ready.wake()
        for batch in abandoned:
            _log.warning(
                "%s/%s: cannot rebuild a batch that was in flight before the restart: records are missing or memory is "
                "too small; sending it under a new key, duplicates are possible",
                *batch.key[:2],
            )

    def seal_expired(self, now: float) -> float:
        """Seal the batches that lingered long enough, and with them those that nearly did.

        :returns: seconds until the next batch may have lingered. If no batch was opened for a while, this is longer
            than a batch may linger, and ``unwatched`` is set.
        """
        with self._lock:
            wait = self._linger
            along = min(ALONG_SHARE * self._linger, ALONG_SECONDS)
            expired: list[ProducerBatch] = []
            for batch in self._open.values():
                left = batch.created_at + self._linger - now
                if left > (along if expired else 0):
                    wait = left
                    break
                expired.append(batch)
            for batch in expired:
                self._seal(batch)
            self._forget_idle(now)
            self.unwatched = not (self._open or self._forming) and now - self._youngest >= QUIET_SECONDS
            if self.unwatched:
                wait = max(wait, QUIET_SECONDS)
        self._ready.wake()
        if self._forming:
            self.abandon_forming(now - _FORMING_SECONDS)
        return wait

    def seal_stream(self, key: StreamKey) -> None:
        """Seal the stream's open batch, if it has one."""
        with self._lock:
            batch = self._open.get(key)
            if batch is not None:
                self._seal(batch)
        self._ready.wake()

    def seal_open(self) -> int:
        """Seal every open batch; return the serial of the next new batch."""
        with self._lock:
            for batch in list(self._open.values()):
                self._seal(batch)
            serial = self._next_serial
        self._ready.wake()
        return serial

    def close(self) -> None:
        """Refuse further records, and seal every batch."""
        with self._lock:
            self._closed = True
            for batch in list(self._forming.values()):
                self._seal(batch)
        self.seal_open()

    def may_send(self, batch: ProducerBatch) -> bool:
        """True if a sealed batch may be sent; otherwise :meth:`forget` returns it when its turn has come."""
        if not self._in_line(batch):
            return True
        with self._lock:
            return self._order.ready(batch)

    @property
    def frozen(self) -> bool:
        """True if :meth:`freeze` was called."""
        return self._order.frozen

    def freeze(self) -> None:
        """Stop releasing batches that wait behind another one of their stream."""
        with self._lock:
            self._order.freeze()

    def stop(self, batch: ProducerBatch, error: StreamStoppedError) -> list[ProducerBatch]:
        """Stop an ordered stream, one of whose batches fails permanently: refuse further records.

        :param batch: the batch that fails.
        :returns: the batches that wait behind it, to be failed as well.
        """
        with self._lock:
            self._stopped.add(batch.key.line, error)
            behind = self._order.stop(batch)
            for waiting in filter(lambda batch: batch.open is not None, behind):
                self._seal(waiting)
        return behind

    def stopped(self, key: StreamKey) -> StreamStoppedError | None:
        """Return the error that stopped the stream; None if it is not stopped."""
        if not self._stopped.any:
            return None
        with self._lock:
            return self._stopped.get(key.line)

    def resume(self, key: StreamKey) -> None:
        """Resume a stopped stream."""
        with self._lock:
            self._stopped.remove(key.line)

    def forget(self, batch: ProducerBatch, *, delivered: bool | None, memory: int = 0) -> ProducerBatch | None:
        """Remove a completed batch.

        :param delivered: None for a batch that was neither delivered nor abandoned.
        :param memory: bytes to return to the budget.
        :returns: the next batch of the same stream, if it may be sent.
        """
        now = self._clock.monotonic()
        wait_until_free(self._lock)
        with self._lock:
            if memory:
                self._budget.give_back(memory)
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
                stream.idle_since = now
                self._idle[batch.key] = stream
                self._forget_idle(now)
            awaited = self._awaited and self._oldest_serial() >= min(self._awaited)
        if awaited:
            self._settled.wake_all()
        return successor

    def _oldest_serial(self) -> float:
        """Return the serial of the oldest batch. Halves of split batches may be older, and are listed after younger
        ones. The caller holds the lock.
        """
        oldest = next(iter(self._incomplete), None)
        return math.inf if oldest is None else oldest.serial

    def replace(self, batch: ProducerBatch, halves: tuple[ProducerBatch, ProducerBatch]) -> None:
        """Replace a batch by its two halves."""
        with self._lock:
            for half in halves:
                self._incomplete[half] = None
            self._incomplete.pop(batch, None)
            batch.stream.alive += 1
            if self._in_line(batch):
                self._order.cut(batch, halves)

    def wait_settled(self, before: int, deadline: Deadline) -> int:
        """Wait until every batch with a serial below ``before`` is completed; return the number of those that
        are not.
        """
        with self._lock:
            self._awaited.append(before)
        try:
            if self._settled.wait_until(lambda: self._all_settled(before), deadline):
                return 0
        finally:
            with self._lock:
                self._awaited.remove(before)
        with self._lock:
            return sum(1 for batch in self._incomplete if batch.serial < before)

    def _all_settled(self, before: int) -> bool:
        with self._lock:
            return self._oldest_serial() >= before and not any(batch.serial < before for batch in self._incomplete)

    def incomplete(self) -> list[ProducerBatch]:
        """Return every batch that is not completed, oldest first."""
        with self._lock:
            return list(self._incomplete)

    def incomplete_in_child(self) -> list[ProducerBatch]:
        """Return the batches without taking the lock: after a fork, a thread of the parent may have held it."""
        return list(self._incomplete)

    def oldest_age(self) -> float | None:
        """Return the age of the oldest batch that is not completed, seconds since its first record; None if there is
        none.
        """
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

    def stream_counts(self) -> dict[StreamKey, tuple[int, int, int]]:
        """Return the numbers of accepted, delivered and failed logs of every remembered stream."""
        with self._lock:
            streams, open_ = list(self._streams.items()), dict(self._open)
        return {
            key: (stream.accepted + (open_[key].log_count if key in open_ else 0), stream.delivered, stream.failed)
            for key, stream in streams
        }


def _sequence_of(key: StreamKey, number: int | None, formed: SentBefore | None) -> SequenceId | None:
    """Return the key and number of a new batch: its piece's number, or those from before a restart; else None."""
    if number is not None:
        return SequenceId(hash_key_of(key.order), number)
    return None if formed is None else formed.sequence
