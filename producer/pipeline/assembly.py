"""Pipeline: the stages of one producer in one process, put together.

``client`` makes one, and a new one after a fork; it knows no protocol and no disk, only a sink. The file is long since
all that starts, joins and ends the stages stands in one place.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..clock import Clock, Deadline
from ..config import MAX_BATCH_COUNT, MAX_BATCH_SIZE_IN_BYTES, ProducerConfig
from ..errors import (
    DeliveryAbandonedError,
    FlushTimeoutError,
    LogSizeTooLargeError,
    MaxBatchCountExceedError,
    ProducerClosedError,
    ProducerError,
    SendTimeoutError,
    StreamStoppedError,
)
from ..interfaces import Notes, Record, Sink
from ..metrics import Counters, Stats
from ..records import StreamKey
from ..results import Attempt, Callback, SendFuture
from ..wire.log_group import LogEncoder
from .accumulator import LogAccumulator
from .acks import Acks
from .batch import MAX_BATCH_OVERHEAD, RECORD_OVERHEAD, BatchState, ProducerBatch, overhead_of_batch
from .doubt import SentBefore
from .event_format import StoredRecord
from .fed_batch import FedBatch
from .handlers import Settlement
from .intents import Intents
from .io_pool import IOThreadPool
from .memory import MemoryBudget
from .mover import Mover
from .open_run import OpenRun
from .reservation import Piece, Reservation, with_overhead
from .retry_queue import RetryQueue
from .retry_rules import RetryRules
from .send_task import SendTask
from .sending.fair_queue import fair_queue_of
from .sequencing import Sequencer
from .settling.outcomes import NobodyListens
from .snapshot import snapshot
from .ticket import Ticket

_log = logging.getLogger("producer.pipeline")


@dataclass(frozen=True, slots=True)
class Durability:
    """That records come out of a channel, and stay there until they are settled.

    :ivar channel: its name.
    :ivar acks: are told of every outcome.
    :ivar await_mending: whether a record that is refused for what somebody can mend waits for that.
    :ivar notes: where the numbers of idempotent streams are kept; None if they do not survive.
    """

    channel: str
    acks: Acks
    await_mending: bool
    notes: Notes | None = None


class Pipeline:
    """See the module.

    :param name: prefix of the threads' names.
    :param orphaned: whether nobody holds the producer any more.
    :param abandon: called on the mover's thread once that is so.
    :param on_start: called once, before the first record is accepted; False if nobody will ever close the pipeline,
        because the process is past that.
    :param threadless: start no threads: whoever flushes or closes does the work (see :meth:`work_inline`).
    :param durability: None for records that exist only here.
    """

    def __init__(
        self,
        config: ProducerConfig,
        sink: Sink,
        clock: Clock,
        name: str,
        *,
        orphaned: Callable[[], bool] = lambda: False,
        abandon: Callable[[], None] = lambda: None,
        on_start: Callable[[], bool | None] = lambda: None,
        threadless: bool = False,
        durability: Durability | None = None,
    ) -> None:
        self.clock = clock
        self.sink = sink
        self.name = name
        self.counters = Counters()
        self._max_block = None if config.max_block_ms < 0 else config.max_block_ms / 1000
        lock = threading.Lock()  # the budget's and the accumulator's
        self.budget = MemoryBudget(
            config.total_size_in_bytes, clock, self._oldest_age, lambda: not self.on_handler_thread(), lock
        )
        self._durability = durability
        durable = durability is not None
        self.accumulator = LogAccumulator(
            config,
            clock,
            self.submit,
            sink.tail_size,
            self.budget,
            lock,
            batch_type=FedBatch if durable else ProducerBatch,
            ordered=durable,
        )
        notes = durability.notes if durability else None
        self.intents = Intents(notes, self.accumulator.incomplete) if notes is not None else None
        self.retry_queue = RetryQueue(clock)
        self.settlement = Settlement(
            name,
            self.budget,
            self.accumulator,
            self.counters,
            go=self._go,
            listener=durability.acks if durability else NobodyListens(),
        )
        await_mending = durability is not None and durability.await_mending
        rules = RetryRules(config, clock, endless=durable, await_mending=await_mending)
        task = SendTask(
            sink=sink,
            clock=clock,
            rules=rules,
            sequencer=Sequencer(config.buckets, self.intents),
            retry_queue=self.retry_queue,
            accumulator=self.accumulator,
            settlement=self.settlement,
            counters=self.counters,
            submit=self.submit,
            keep=self.abandon if durable else None,
        )
        self.io_pool = IOThreadPool(
            name,
            config.io_thread_count,
            fair_queue_of(config, rules.last_chance),
            destination=sink.destination,
            run=task.run,
            refuse=self.abandon,
            set_alarm=self.retry_queue.set_alarm,
            clock=clock,
        )
        self.mover = Mover(
            name,
            accumulator=self.accumulator,
            retry_queue=self.retry_queue,
            submit=self.submit,
            resubmit=self.resubmit,
            submit_open=self.submit_open,
            open_gates=self.io_pool.wake,
            clock=clock,
            orphaned=orphaned,
            abandon=abandon,
        )
        #: A single log whose charge is no more than this needs no closer look.
        self._surely_fits = min(config.total_size_in_bytes - MAX_BATCH_OVERHEAD, MAX_BATCH_SIZE_IN_BYTES // 2)
        self._threshold = config.batch_size_threshold_in_bytes
        self._on_start = on_start
        self._starting = threading.Lock()  # guards the start of the threads
        self._started = False
        #: The threads were to start, and could not.
        self.late = False
        self._last = False  # nobody will close this pipeline: each send is complete when it returns
        self._leaving = False  # what waits behind another batch of its stream will not be sent any more
        self.drain_timeout = config.drain_timeout_ms / 1000
        #: Asked for, or the interpreter would not start threads any more: whoever waits does the work itself.
        self.threadless = threadless

    def accept(
        self,
        key: StreamKey,
        record: Record,
        logs: int,
        callback: Callback | None,
        memory: Reservation | None = None,
    ) -> SendFuture:
        """Take over one send.

        :param record: its encoded logs, joined.
        :param logs: how many they are.
        :param memory: where its memory comes from, as far as it reaches.
        :raises LogSizeTooLargeError: it cannot fit in a batch, or in the memory.
        :raises MaxBatchCountExceedError: more logs than a batch may hold.
        :raises SendTimeoutError: no memory within ``max_block_ms``.
        :raises ProducerClosedError: after ``close`` began.
        :raises StreamStoppedError: a batch of the ordered stream has failed for good.
        """
        if not self._started:
            self.start()
        charge = len(record) + RECORD_OVERHEAD
        if logs > 1 or charge > self._surely_fits:
            self.check_size(key, record, logs)
        future = None
        if memory is None:
            future = self.accumulator.append(key, record, logs, callback, charge, 0, paid=False)
        if future is None:
            future = self._accept_paid(key, record, logs, callback, charge, memory)
        if self.late:
            self._work_due()
        return future

    def _accept_paid(
        self,
        key: StreamKey,
        record: Record,
        logs: int,
        callback: Callback | None,
        charge: int,
        memory: Reservation | None,
    ) -> SendFuture:
        """As :meth:`accept`, with memory that may have to be waited for."""
        opening = 0 if self.accumulator.has_open(key) else overhead_of_batch(key)
        while True:
            future = None
            if memory is None:
                self._hand_on_lingering(charge + opening)
                self.budget.acquire(charge + opening, self._max_block)
            else:
                memory.pay(charge + opening)
            try:
                future = self.accumulator.append(key, record, logs, callback, charge, opening)
            finally:
                if future is None:
                    self.budget.release(charge + opening)
            if future is not None:
                return future
            opening = overhead_of_batch(key)

    def _hand_on_lingering(self, wanted: int) -> None:
        """Before a wait for memory: if most of it is in batches that take records, which give none back before they
        have lingered, they go at once. So many streams need no more memory than a few.
        """
        limit = self.budget.limit
        if self.budget.used + wanted > limit and 2 * self.accumulator.open_bytes() > limit:
            (self.submit_open if self.threadless else self.mover.hurry)()

    def open_run(self, key: StreamKey, encoder: LogEncoder) -> OpenRun | None:
        """Where logs of shapes that ``encoder`` knows go without a closer look; None if there is no such place."""
        return None if self.late else self.accumulator.open_run(key, encoder)

    def accept_many(
        self, key: StreamKey, pieces: Sequence[tuple[bytes, int]], callback: Callback | None
    ) -> list[SendFuture]:
        """As :meth:`accept`, for several records and how many logs each of them holds; all are checked first.

        :raises SendTimeoutError: the error's ``accepted`` and ``accepted_logs`` say how far it came. Likewise
            ProducerClosedError and StreamStoppedError.
        """
        for record, logs in pieces:
            self.check_size(key, record, logs)
        futures: list[SendFuture] = []
        sent = 0
        for record, logs in pieces:
            try:
                futures.append(self.accept(key, record, logs, callback))
            except (SendTimeoutError, ProducerClosedError, StreamStoppedError) as error:
                error.accepted, error.accepted_logs = futures, sent
                raise
            sent += logs
        return futures

    def accept_encoded(
        self, estimate: int, encode: Callable[[], Sequence[Piece]], callback: Callback | None
    ) -> list[SendFuture]:
        """Take over what is encoded only when there is memory for it.

        :param estimate: its size once it is encoded, about, bytes.
        :param encode: makes the pieces, each of them checked by :meth:`check_size`.
        :raises ProducerError: as :meth:`accept`; the error's ``accepted`` and ``accepted_logs`` say how far it came.
        """
        if not self._started:
            self.start()
        # What lingers in open batches holds memory, too.
        with Reservation(self.budget, self._max_block, self.submit_open) as memory:
            memory.acquire(with_overhead(estimate))
            pieces = encode()
            memory.settle(self._charge_of(pieces))
            return self._accept_from(memory, pieces, callback)

    def _accept_from(self, memory: Reservation, pieces: Sequence[Piece], callback: Callback | None) -> list[SendFuture]:
        futures: list[SendFuture] = []
        for key, record, logs in pieces:
            try:
                futures.append(self.accept(key, record, logs, callback, memory))
            except ProducerError as error:
                error.accepted = futures
                error.accepted_logs = sum(piece.logs for piece in pieces[: len(futures)])
                raise
        return futures

    def _charge_of(self, pieces: Sequence[Piece]) -> int:
        """The memory that accepting them takes, bytes: they open a batch for each new stream, or when one is full."""
        charge, opened = 0, set()
        for key, record, _ in pieces:
            charge += len(record) + RECORD_OVERHEAD
            if 2 * len(record) > self._threshold or (key not in opened and not self.accumulator.has_open(key)):
                charge += overhead_of_batch(key)
                opened.add(key)
        return charge

    def feed(self, stored: StoredRecord, ticket: Ticket, before: SentBefore | None = None) -> None:
        """Take over a record of the channel; waits for memory as long as it takes.

        One that was accepted when there was more memory than now gets all that there is.

        :param before: what the batch was sent under that it was in before a restart, and has to be in again; None if
            it was in none.
        :raises ProducerClosedError: after ``close`` began to leave records in the channel.
        :raises StreamStoppedError: a batch of the ordered stream has failed for good: the record stays there.
        """
        key, record = stored.key, stored.record
        stopped = self.stopped(key)
        if stopped is not None:
            raise stopped  # before any memory is waited for
        overhead = overhead_of_batch(key)
        charge = min(len(record) + RECORD_OVERHEAD, max(0, self.budget.limit - overhead))
        there = self.accumulator.has_open(key) if before is None else self.accumulator.is_forming(key)
        opening = 0 if there else min(overhead, self.budget.limit)
        while True:
            future = None
            if self.budget.used + charge + opening > self.budget.limit and self.accumulator.all_open:
                self.submit_open()  # nothing else will ever give memory back before they have lingered
                self._give_up_forming()
            self.budget.acquire(charge + opening, None)
            try:
                if before is None:
                    number = stored.number
                    future = self.accumulator.append(key, record, stored.logs, ticket, charge, opening, number)
                else:
                    future = self.accumulator.form(key, record, stored.logs, ticket, charge, opening, before)
            finally:
                if future is None:
                    self.budget.release(charge + opening)
            if future is not None:
                return
            opening = min(overhead, self.budget.limit)

    def formed(self, key: StreamKey) -> None:
        """The stream's batch of before the restart has all its records."""
        batch = self.accumulator.formed(key)
        if batch is not None:
            self.submit(batch)

    def _give_up_forming(self) -> None:
        for batch in self.accumulator.give_up_forming():
            self.submit(batch)

    def check_size(self, key: StreamKey, record: Record, logs: int) -> None:
        """Whether one send could be accepted at all; nothing is taken.

        :raises LogSizeTooLargeError: as :meth:`accept`.
        :raises MaxBatchCountExceedError: as :meth:`accept`.
        """
        charge = len(record) + RECORD_OVERHEAD + overhead_of_batch(key)
        if charge > self.budget.limit:
            what = f"memory for {len(record)} bytes of logs and their overhead, against total_size_in_bytes"
            raise LogSizeTooLargeError(charge, self.budget.limit, what)
        if logs > MAX_BATCH_COUNT:
            raise MaxBatchCountExceedError(logs, MAX_BATCH_COUNT)
        # A tail is small; it is not worth computing for ordinary records.
        if len(record) > MAX_BATCH_SIZE_IN_BYTES // 2:
            size = len(record) + self.sink.tail_size(key, "F" * 33)
            if size > MAX_BATCH_SIZE_IN_BYTES:
                raise LogSizeTooLargeError(size, MAX_BATCH_SIZE_IN_BYTES, "one batch with this log or list")

    def _oldest_age(self) -> float | None:
        return self.accumulator.oldest_age()

    def start(self) -> None:
        """Start the threads, once."""
        with self._starting:
            if self._started:
                return
            if self._on_start() is False:
                self.threadless = self.late = self._last = True
            if not self.threadless:
                self._start_threads()
            self._started = True

    def _start_threads(self) -> None:
        try:
            for handler in self.settlement.handlers:
                handler.thread.start()
            self.io_pool.start()
            self.mover.thread.start()
        except RuntimeError as error:
            self.threadless = self.late = True
            reason = "the interpreter is shutting down" if "shutdown" in str(error) else error
            consequence = "records are sent by those who call send, flush and close"
            if self._durability is not None:
                consequence = "records stay in the channel, and the next producer on it delivers them"
            _log.warning("%s: no threads can be started (%s): %s", self.name, reason, consequence)

    def submit(self, batch: ProducerBatch) -> None:
        """Queue a new batch for its first attempt; nothing if another thread was quicker to do so."""
        try:
            if batch.claim():
                self._go_in_turn(batch)
        except BaseException:  # an interrupt, anywhere in here: nobody else would queue what this thread has claimed
            mine = batch.claimed_by == threading.get_ident()
            if mine and batch.state is BatchState.QUEUED and not self.io_pool.has(batch):
                self._go_in_turn(batch)
            raise

    def _go_in_turn(self, batch: ProducerBatch) -> None:
        if self.accumulator.may_go(batch):
            self._go(batch)
        elif self._leaving:
            self.abandon(batch)

    def _go(self, batch: ProducerBatch) -> None:
        self.io_pool.submit(batch)

    def resubmit(self, batch: ProducerBatch) -> None:
        """Queue a batch out of the retry queue for another attempt."""
        if batch.move(BatchState.QUEUED):
            self.io_pool.submit(batch)

    def submit_open(self) -> int:
        """Queue every batch that takes records; returns the serial below which all batches are on their way."""
        _, serial = self.accumulator.take_all()
        # A batch that a sender took out and, interrupted, never handed on is open too.
        for batch in self.accumulator.incomplete():
            if batch.state is BatchState.OPEN and batch.serial < serial and not batch.forming:
                self.submit(batch)
        return serial

    def abandon(self, batch: ProducerBatch) -> bool:
        """Fail ``batch`` because the producer closed; False if it was settled before.

        What came out of a channel stays there.
        """
        if self._durability is not None:
            in_flight = batch.state is BatchState.SENDING
            return self.settlement.leave(batch, self.left_in_channel(may_have_been_stored=in_flight))
        message = "the producer was closed before the record could be delivered"
        in_flight = batch.state is BatchState.SENDING
        error = DeliveryAbandonedError("ProducerClosed", message, may_have_been_stored=in_flight)
        return self.settlement.abandon(batch, self._attempt_of(error))

    def left_in_channel(self, *, may_have_been_stored: bool = False) -> Attempt:
        """What stands at the end of the attempts of a record that stays in the channel."""
        channel = self._durability.channel if self._durability is not None else ""
        message = (
            "the producer was closed before the record could be delivered: it is stored in channel "
            f"{channel}, and the next producer on it delivers it"
        )
        return self._attempt_of(
            DeliveryAbandonedError("LeftInChannel", message, may_have_been_stored=may_have_been_stored)
        )

    def stopped(self, key: StreamKey) -> StreamStoppedError | None:
        """Why an ordered stream is stopped; None if it is not."""
        return self.accumulator.stopped(key)

    def resume(self, key: StreamKey) -> None:
        """Let a stopped stream go on: what is sent from now on is."""
        self.accumulator.resume(key)

    def freeze(self) -> None:
        """Let no batch go any more that waits behind another one of its stream: the one before it will be failed."""
        self._leaving = True
        self.accumulator.freeze()

    def leave_unsent(self) -> int:
        """Make no new attempts: settle whatever is not with the server at this moment as left in the channel.

        :returns: the serial below which the rest is.
        """
        self.freeze()
        self.accumulator.close()
        self.mover.stop()
        self.io_pool.stop_at_once()
        self.retry_queue.close()
        for batch in self.accumulator.incomplete():
            if not self.io_pool.has(batch):
                self.abandon(batch)
        return self.accumulator.take_all()[1]

    def forked_away(self) -> Attempt:
        """What stands at the end of the attempts of a record that belongs to the parent of this process."""
        message = "the record belongs to the parent process, which delivers it"
        return self._attempt_of(DeliveryAbandonedError("ForkedAway", message))

    def abandon_in_child(self) -> None:
        """After a fork: the records are the parent's, which sends them; nobody in this process shall wait for them."""
        attempt = self.forked_away()
        for batch in self.accumulator.incomplete_in_child():
            batch.abandon_in_child(batch.outcome(successful=False, last=attempt))

    def _attempt_of(self, error: DeliveryAbandonedError) -> Attempt:
        return Attempt(
            success=False,
            error_code=error.code,
            error_message=error.message,
            timestamp_ms=int(self.clock.time() * 1000),
            may_have_been_stored=error.may_have_been_stored,
        )

    def on_handler_thread(self) -> bool:
        """Whether the caller is a callback."""
        return any(handler.thread.current for handler in self.settlement.handlers)

    def flush(self, timeout: float | None) -> None:
        """Send what is open, and wait until everything accepted before is settled and its callbacks have run.

        :param timeout: seconds; None waits for ever.
        :raises FlushTimeoutError: it took longer; the deliveries go on.
        """
        self.must_not_be_a_callback("flush")
        deadline = Deadline.after(self.clock, timeout)
        serial = self.submit_open()
        if self.threadless:
            self.work_inline(deadline)
        remaining = self.accumulator.wait_settled(serial, deadline)
        barriers = [handler.barrier() for handler in self.settlement.handlers if self._started]
        if self.threadless:
            self.work_inline(deadline)
        if remaining or not all(self.passed(barrier, deadline) for barrier in barriers):
            raise FlushTimeoutError(remaining, timeout or 0.0)

    def must_not_be_a_callback(self, call: str) -> None:
        """Refuse what cannot be done on a handler's thread.

        :raises ProducerError: the caller is a callback.
        """
        if self.on_handler_thread():
            raise ProducerError(f"{call} inside a callback would wait for itself: call it on another thread")

    def passed(self, barrier: threading.Event, deadline: Deadline) -> bool:
        """Wait for ``barrier``; whether it was set in time."""
        left = deadline.remaining(self.clock)
        return barrier.wait(None if left is None else min(left, threading.TIMEOUT_MAX))

    def _work_due(self) -> None:
        """Do what the threads would be doing now, in their place."""
        if self._last:
            self._deliver_now()
            return
        self.mover.run_once()
        while self.io_pool.run_next():
            pass
        for handler in self.settlement.handlers:
            while handler.run_next():
                pass

    def _deliver_now(self) -> None:
        try:
            self.flush(self.drain_timeout)
        except FlushTimeoutError:
            lost = sum(batch.log_count for batch in self.accumulator.incomplete())
            _log.error("%s: %d records sent after the exit of the interpreter began are lost", self.name, lost)

    def work_inline(self, deadline: Deadline) -> None:
        """Do the work of all stages on the caller's thread until nothing is left, or the deadline."""
        while not deadline.expired(self.clock):
            wait = self.mover.run_once()
            busy = self.io_pool.run_next()
            for handler in self.settlement.handlers:
                busy |= handler.run_next()
            if busy:
                continue
            if not self.accumulator.incomplete():
                return
            left = deadline.remaining(self.clock)
            self.retry_queue.wait(wait if left is None else min(wait, left))

    def stats(self) -> Stats:
        """See :class:`~producer.metrics.Stats`."""
        return snapshot(self.budget, self.accumulator, self.io_pool, self.settlement, self.counters)
