"""LogAccumulator: the batches of every stream that are not settled, and which of them take records.

Records are added to the open batch of their stream. A batch that is full, or has lingered, is sealed: it takes no more
records, and goes to the IO threads, or waits behind another batch of its ordered stream. A stream is remembered only
while it has a batch under way, and a little longer for its context (pack id) and its counters. The file is long because
whatever one lock guards stands in one place.
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
from ..threads import stand_back
from .attempt_history import AttemptHistory
from .batch import ProducerBatch, Recipient, overhead_of_batch
from .cut import CutRule
from .memory import MemoryBudget, Reservation
from .open_records import RECORD_OVERHEAD
from .open_records import OpenRecords as PureOpenRecords
from .origins import Origins
from .ready_batches import ReadyBatches
from .stopped_streams import StoppedStreams
from .stream_order import StreamOrder
from .stream_state import StreamState
from .unconfirmed import Doubt, SentBefore

_log = get_logger("loghub.accumulator")

#: What the ends of open batches are.
OpenRecords = either(f"{__package__}._open_records", "OpenRecords", PureOpenRecords)

#: Streams without a batch under way that are remembered, and for how long, seconds.
MAX_IDLE_STREAMS = 4096
IDLE_STREAM_SECONDS = 60.0
#: Contexts that are drawn at once.
CONTEXTS_DRAWN = 64
#: When no batch was opened for so long, nobody looks for lingered ones more often than that, seconds.
QUIET_SECONDS = 2.0
#: With a batch that lingered long enough go those whose time comes within this share of it, and so many seconds, so
#: that of many small ones each need not wake a thread of its own.
ALONG_SHARE, ALONG_SECONDS = 0.1, 0.01
#: How long a producer's first batch lingers at most, seconds: a wrong endpoint or key is to show at once.
FIRST_LINGER_SECONDS = 0.5
#: How long a batch that was in flight before a restart may take to be formed again, seconds. All of them were in memory
#: together before, so they should fit again; should they not, this lets them go.
_FORMING_SECONDS = 60.0


class Piece(NamedTuple):
    """One send, encoded.

    :ivar key: its stream.
    :ivar record: its logs, joined.
    :ivar logs: how many they are.
    """

    key: StreamKey
    record: Record
    logs: int


class LogAccumulator:
    """See the module.

    :param sink: knows the size of a batch's body without records; asked without the lock.
    :param budget: what batches owe their memory to; its lock guards everything here as well, since the most frequent
        step touches both.
    :param cut: says when a batch is full.
    :param ready: takes the sealed batches.
    :param kept: True if each record has an origin. Then of every stream one batch is in flight at a time, not only of
        ordered ones; see :class:`StreamOrder`.
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
        self._thresholds = cut.thresholds  # one object, which all batches share
        self._sink = sink
        self._budget = budget
        self._cut = cut
        self._ready = ready
        self._fallback = fallback_of(config.default, config.on_unencodable)
        self._settled = WaitingRoom(clock, LOOK_AGAIN)
        self._lock = budget.lock  # guards everything below
        self._linger = min(config.linger_ms / 1000, FIRST_LINGER_SECONDS)  # until the first is sealed
        self._open: OrderedDict[StreamKey, ProducerBatch] = OrderedDict()  # in the order of creation: of expiry, too
        self._forming: dict[StreamKey, ProducerBatch] = {}
        self._given_up: set[str] = set()
        self._incomplete: OrderedDict[ProducerBatch, None] = OrderedDict()
        #: The serials below which a thread waits for all to be settled.
        self._awaited: list[int] = []
        self._streams: dict[StreamKey, StreamState] = {}
        self._contexts: list[str] = []  # of streams to come
        self._idle: OrderedDict[StreamKey, StreamState] = OrderedDict()  # those with nothing alive, longest idle first
        self._kept = kept
        self._order = StreamOrder()
        self._stopped = StoppedStreams()
        self._next_serial = 0
        self._youngest = clock.monotonic()  # when the newest batch was opened; at first, now
        self._accepted = 0  # in batches that take no more records
        #: Whoever looks for lingered batches comes late, unless he is woken; the one who opens a batch has to do that.
        self.unwatched = False
        self._closed = False

    def takes(self, key: StreamKey) -> bool:
        """Whether the stream has a batch that takes records at this moment: a guess, which :meth:`add` checks."""
        return key in self._open or key in self._forming

    @property
    def all_open(self) -> bool:
        """Whether every batch still takes records, so that none will be settled soon: a guess."""
        return len(self._open) + len(self._forming) == len(self._incomplete)

    def draft(self, key: StreamKey) -> ProducerBatch:
        """The next batch of a stream, which nobody knows of before :meth:`add` opens it with a record."""
        stream = self._streams.get(key) or StreamState(self._new_context())
        number = stream.next_number
        pack_id = f"{stream.context}-{number:X}" if self._config.generate_pack_id else None
        draft = ProducerBatch(
            key,
            stream=stream,
            serial=number,  # of its stream, until it is opened
            pack_id=pack_id,
            tail_size=self._sink.tail_size(key, pack_id),
            created_at=self._clock.monotonic(),
            origins=Origins() if self._kept else None,
        )
        draft.open = OpenRecords(
            draft, self._budget, self._clock, self._thresholds, draft.tail_size, self._fallback, self._kept
        )
        return draft

    def _new_context(self) -> str:
        """16 random hexadecimal digits, drawn for many streams at once: each call of the system costs a microsecond."""
        while True:
            try:
                return self._contexts.pop()  # which no two threads get
            except IndexError:
                drawn = secrets.token_hex(8 * CONTEXTS_DRAWN).upper()
                self._contexts += [drawn[at : at + 16] for at in range(0, len(drawn), 16)]

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
        """Add one send to the batch of its stream, which owes its memory from now on.

        :param recipient: as the batch's ``add`` takes it.
        :param draft: the batch to open, if there is none or no room in it.
        :param memory: what was reserved; what that lacks is taken from the budget, if it is free.
        :param number: of a stream with a ``SequenceKey``, if it was given before; None to take the next one.
        :param before: what the record was sent under before a restart: it goes into a batch that is neither full nor
            lingers, but is sealed by :meth:`seal_formed`.
        :returns: the future; else nothing was done, and what is missing: so many bytes have to be reserved, or, if 0, a
            draft is needed that is up to date.
        :raises ProducerClosedError: after :meth:`close`.
        :raises StreamStoppedError: a batch of the ordered stream has failed for good.
        """
        key, record, logs = piece
        stand_back(self._lock)
        with self._lock:
            self._must_accept(key)
            # Of a batch that was given up others were sent under a new key: the old one must not be used again.
            forms = before is not None and before.sequence.key not in self._given_up
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

    def _must_accept(self, key: StreamKey) -> None:
        if self._closed:
            raise ProducerClosedError("the producer is closed")
        error = self._stopped.get(key.line) if self._stopped.any else None
        if error is not None:
            raise error

    def _is_current(self, draft: ProducerBatch) -> bool:
        stream = draft.stream
        return self._streams.get(draft.key, stream) is stream and draft.serial == stream.next_number

    def _charge_of(self, piece: Piece, opening: int = 0) -> int:
        """The memory that a send takes, bytes; all there is for one that was accepted when there was more."""
        charge = len(piece.record) + RECORD_OVERHEAD + opening
        limit = self._budget.limit
        return charge if charge < limit else limit

    def _take(self, charge: int, memory: Reservation | None) -> bool:
        """Take the memory of a piece, from ``memory`` as far as that reaches; return whether it was there."""
        reserved = 0 if memory is None else min(charge, memory.held)
        if reserved < charge and not self._budget.take(charge - reserved):
            return False
        if memory is not None:
            memory.spend(reserved)
        return True

    def _append(self, batch: ProducerBatch, piece: Piece, recipient: Recipient, charge: int) -> SendFuture | None:
        """Let a batch have a piece, and owe its memory; None if it has no room. The caller holds the lock."""
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

        :param number: of the piece, if its sender owns the numbers.
        :param formed: what the batch was sent under before a restart.
        """
        key = draft.key
        future = self._append(draft, piece, recipient, charge)
        if future is None:
            raise RuntimeError("a draft takes no records")  # a bug
        if isinstance(key.order, Numbering) and number is not None:
            key.order.next = number + 1
        draft.sequence = _sequence_of(key, number, formed)
        draft.doubt = None if formed is None else Doubt(draft, shorter=formed.shorter)
        if formed is None and key in self._open:
            self._seal(self._open[key])
        try:
            self._register(draft, forms=formed is not None)
        except BaseException:  # a signal handler raised
            self._unregister(draft)
            raise
        # One with a number of its own takes no other record, and does not linger.
        if formed is None and (number is not None or self._cut.is_full(draft.size, draft.log_count)):
            self._seal(draft)
        return future

    def _register(self, draft: ProducerBatch, *, forms: bool) -> None:
        """Let a batch that has its first record be known. The caller holds the lock."""
        key, stream = draft.key, draft.stream
        draft.serial = self._next_serial
        draft.created_at = max(draft.created_at, self._youngest)  # which another thread may have overtaken
        if self._in_line(draft):
            self._order.opened(draft)
        self._idle.pop(key, None)
        self._streams[key] = stream  # a new one, or one that was forgotten since
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
        """Undo what :meth:`_register` has done of its work. The caller holds the lock."""
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
        """The number of a piece, the next one of its handle if none was given; None for a stream without a
        ``SequenceKey``.
        """
        if not key.order.startswith(SEQUENCED) or number is not None:
            return number
        if not isinstance(key.order, Numbering):
            raise RuntimeError(f"nobody numbers the pieces of {key}")  # a bug
        key.order.check()
        return key.order.next

    def _forget_idle(self, now: float) -> None:
        while self._idle:
            key, stream = next(iter(self._idle.items()))
            if len(self._idle) <= MAX_IDLE_STREAMS and now - stream.idle_since < IDLE_STREAM_SECONDS:
                return
            del self._idle[key], self._streams[key]

    def _seal(self, batch: ProducerBatch) -> None:
        """Let a batch take no more records. The caller holds the lock."""
        taking = self._forming if batch.forming else self._open
        batch.seal()
        batch.history = AttemptHistory(self._config.max_reserved_attempts)
        held, logs = batch.held, batch.log_count
        may_go = not self._in_line(batch) or self._order.is_turn_of(batch)
        del taking[batch.key]
        batch.forming = False
        self._budget.sealed += held
        batch.stream.accepted += logs
        self._accepted += logs
        self._linger = self._config.linger_ms / 1000
        if may_go:
            self._ready.batches.append(batch)
        else:
            self._order.waiting.add(batch)

    def seal_formed(self, key: StreamKey) -> None:
        """The stream's batch of before the restart, if there is one, has all its records."""
        with self._lock:
            batch = self._forming.get(key)
            if batch is not None:
                self._seal(batch)
        self._ready.wake()

    def give_up_forming(self, before: float = math.inf) -> None:
        """Seal the batches of before the restart that were begun before that monotonic time, to be sent under a new
        key: they do not become complete.
        """
        with self._lock:
            given_up = list(filter(lambda batch: batch.created_at < before, self._forming.values()))
            for batch in given_up:
                self._given_up.add(batch.sequence.key if batch.sequence is not None else "")
                batch.sequence = batch.stream.sequence = None
                batch.noted, batch.doubt = False, None
                self._seal(batch)
        self._ready.wake()
        for batch in given_up:
            _log.warning(
                "%s/%s: a batch that was in flight before the restart cannot be formed again (its other records do not "
                "come, or the memory is too small for it): it is sent under a new key, and may be stored twice",
                *batch.key[:2],
            )

    def seal_expired(self, now: float) -> float:
        """Seal the batches that lingered long enough, and with one of them those that nearly did; the seconds until the
        next one may have. Those are more than a new batch lingers, and ``unwatched`` is set, when there was none for a
        while.
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
            self.give_up_forming(now - _FORMING_SECONDS)
        return wait

    def seal_stream(self, key: StreamKey) -> None:
        """Seal the stream's open batch, if it has one."""
        with self._lock:
            batch = self._open.get(key)
            if batch is not None:
                self._seal(batch)
        self._ready.wake()

    def seal_open(self) -> int:
        """Seal every open batch; the serial that the next new batch will have."""
        with self._lock:
            for batch in list(self._open.values()):
                self._seal(batch)
            serial = self._next_serial
        self._ready.wake()
        return serial

    def close(self) -> None:
        """Refuse records from now on, and seal every batch."""
        with self._lock:
            self._closed = True
            for batch in list(self._forming.values()):
                self._seal(batch)
        self.seal_open()

    def may_go(self, batch: ProducerBatch) -> bool:
        """Whether ``batch``, which takes no more records, may be sent now; else :meth:`forget` returns it one day."""
        if not self._in_line(batch):
            return True
        with self._lock:
            return self._order.ready(batch)

    @property
    def frozen(self) -> bool:
        """Whether :meth:`freeze` was called."""
        return self._order.frozen

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
            for waiting in filter(lambda batch: batch.open is not None, behind):
                self._seal(waiting)
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

    def forget(self, batch: ProducerBatch, *, delivered: bool | None, memory: int = 0) -> ProducerBatch | None:
        """``batch`` is settled.

        :param delivered: None for one that was neither delivered nor given up.
        :param memory: what goes back to the budget now, bytes.
        :returns: the batch that may be sent now that this one is out of its way, if there is one.
        """
        now = self._clock.monotonic()
        stand_back(self._lock)
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
        """Below it all batches are settled, but for halves of split ones, which stand behind younger ones. The caller
        holds the lock.
        """
        oldest = next(iter(self._incomplete), None)
        return math.inf if oldest is None else oldest.serial

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

    def stream_counts(self) -> dict[StreamKey, tuple[int, int, int]]:
        """Return how many logs of every stream that is remembered were accepted, delivered, and failed."""
        with self._lock:
            streams, open_ = list(self._streams.items()), dict(self._open)
        return {
            key: (stream.accepted + (open_[key].log_count if key in open_ else 0), stream.delivered, stream.failed)
            for key, stream in streams
        }


def _sequence_of(key: StreamKey, number: int | None, formed: SentBefore | None) -> SequenceId | None:
    """What a new batch is sent under, if that is known: its piece's number, or what it was sent under before."""
    if number is not None:
        return SequenceId(hash_key_of(key.order), number)
    return None if formed is None else formed.sequence
