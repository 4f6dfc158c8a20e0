"""Pipeline: the stages of one producer in one process, put together.

``client`` makes one, and a new one after a fork; it knows no protocol and no disk, only a sink.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from ..clock import Clock, Deadline
from ..config import MAX_BATCH_COUNT, MAX_BATCH_SIZE_IN_BYTES, ProducerConfig
from ..errors import (
    DeliveryAbandonedError,
    FlushTimeoutError,
    LogSizeTooLargeError,
    MaxBatchCountExceedError,
    ProducerError,
)
from ..interfaces import Sink
from ..metrics import Counters, Stats, StreamStats
from ..records import StreamKey
from ..results import Attempt, Callback, SendFuture
from .accumulator import LogAccumulator
from .batch import MAX_BATCH_OVERHEAD, RECORD_OVERHEAD, BatchState, ProducerBatch, overhead_of_batch
from .handlers import Settlement
from .holdback import Holdback
from .io_pool import IOThreadPool
from .memory import MemoryBudget
from .mover import Mover
from .retry_queue import RetryQueue
from .retry_rules import RetryRules
from .send_task import SendTask

_log = logging.getLogger("producer.pipeline")

#: A project that cannot be reached is tried at least this often, seconds: when it is back, its records soon follow.
LONGEST_UNREACHABLE = 5.0


class Pipeline:
    """See the module.

    :param name: prefix of the threads' names.
    :param orphaned: whether nobody holds the producer any more.
    :param abandon: called on the mover's thread once that is so.
    :param on_start: called once, before the first record is accepted; False if nobody will ever close the pipeline,
        because the process is past that.
    :param threadless: start no threads: whoever flushes or closes does the work (see :meth:`work_inline`).
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
    ) -> None:
        self.clock = clock
        self.sink = sink
        self.name = name
        self.counters = Counters()
        self._max_block = None if config.max_block_ms < 0 else config.max_block_ms / 1000
        self.budget = MemoryBudget(
            config.total_size_in_bytes, clock, self._oldest_age, lambda: not self.on_handler_thread()
        )
        self.accumulator = LogAccumulator(config, clock, self.submit, sink.tail_size, self.budget.release)
        self.retry_queue = RetryQueue(clock)
        self.settlement = Settlement(name, self.budget, self.accumulator, self.counters)
        base, longest = config.base_retry_backoff_ms / 1000, config.max_retry_backoff_ms / 1000
        task = SendTask(
            sink=sink,
            clock=clock,
            rules=RetryRules(config, clock),
            over_quota=Holdback(base, longest),
            unreachable=Holdback(base, min(longest, LONGEST_UNREACHABLE)),
            retry_queue=self.retry_queue,
            accumulator=self.accumulator,
            settlement=self.settlement,
            counters=self.counters,
            submit=self.submit,
        )
        self.io_pool = IOThreadPool(name, config.io_thread_count, task.run, self.abandon, clock)
        self.mover = Mover(
            name,
            accumulator=self.accumulator,
            retry_queue=self.retry_queue,
            submit=self.submit,
            resubmit=self.resubmit,
            clock=clock,
            orphaned=orphaned,
            abandon=abandon,
        )
        #: A single log whose charge is no more than this needs no closer look.
        self._surely_fits = min(config.total_size_in_bytes - MAX_BATCH_OVERHEAD, MAX_BATCH_SIZE_IN_BYTES // 2)
        self._on_start = on_start
        self._starting = threading.Lock()  # guards the start of the threads
        self._started = False
        self._late = False  # the threads were to start, and could not
        self._last = False  # nobody will close this pipeline: each send is complete when it returns
        self.drain_timeout = config.drain_timeout_ms / 1000
        #: Asked for, or the interpreter would not start threads any more: whoever waits does the work itself.
        self.threadless = threadless

    def accept(self, key: StreamKey, record: bytes, logs: int, callback: Callback | None) -> SendFuture:
        """Take over one send.

        :param record: its encoded logs, joined.
        :param logs: how many they are.
        :raises LogSizeTooLargeError: it cannot fit in a batch, or in the memory.
        :raises MaxBatchCountExceedError: more logs than a batch may hold.
        :raises SendTimeoutError: no memory within ``max_block_ms``.
        :raises ProducerClosedError: after ``close`` began.
        """
        if not self._started:
            self.start()
        charge = len(record) + RECORD_OVERHEAD
        if logs > 1 or charge > self._surely_fits:
            self.check_size(key, record, logs)
        opening = 0 if self.accumulator.has_open(key) else overhead_of_batch(key)
        while True:
            future = None
            self.budget.acquire(charge + opening, self._max_block)
            try:
                future = self.accumulator.append(key, record, logs, callback, charge, opening)
            finally:
                if future is None:
                    self.budget.release(charge + opening)
            if future is not None:
                break
            opening = overhead_of_batch(key)
        if self._late:
            self._work_due()
        return future

    def check_size(self, key: StreamKey, record: bytes, logs: int) -> None:
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
                self.threadless = self._late = self._last = True
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
            self.threadless = self._late = True
            reason = "the interpreter is shutting down" if "shutdown" in str(error) else error
            _log.warning(
                "%s: no threads can be started (%s): records are sent by those who call send, flush and close",
                self.name,
                reason,
            )

    def submit(self, batch: ProducerBatch) -> None:
        """Queue a new batch for its first attempt; nothing if another thread was quicker to do so."""
        try:
            if batch.claim():
                self.io_pool.submit(batch)
        except BaseException:  # an interrupt, anywhere in here: nobody else would queue what this thread has claimed
            mine = batch.claimed_by == threading.get_ident()
            if mine and batch.state is BatchState.QUEUED and not self.io_pool.has(batch):
                self.io_pool.submit(batch)
            raise

    def resubmit(self, batch: ProducerBatch) -> None:
        """Queue a batch out of the retry queue for another attempt."""
        if batch.move(BatchState.QUEUED):
            self.io_pool.submit(batch)

    def submit_open(self) -> int:
        """Queue every batch that takes records; returns the serial below which all batches are on their way."""
        _, serial = self.accumulator.take_all()
        # A batch that a sender took out and, interrupted, never handed on is open too.
        for batch in self.accumulator.incomplete():
            if batch.state is BatchState.OPEN and batch.serial < serial:
                self.submit(batch)
        return serial

    def abandon(self, batch: ProducerBatch) -> bool:
        """Fail ``batch`` because the producer closed; False if it was settled before."""
        message = "the producer was closed before the record could be delivered"
        in_flight = batch.state is BatchState.SENDING
        error = DeliveryAbandonedError("ProducerClosed", message, may_have_been_stored=in_flight)
        return self.settlement.abandon(batch, self._attempt_of(error))

    def abandon_in_child(self) -> None:
        """After a fork: the records are the parent's, which sends them; nobody in this process shall wait for them."""
        error = DeliveryAbandonedError("ForkedAway", "the record belongs to the parent process, which delivers it")
        attempt = self._attempt_of(error)
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
        if self.on_handler_thread():
            raise ProducerError("flush inside a callback would wait for itself: call it on another thread")
        deadline = Deadline.after(self.clock, timeout)
        serial = self.submit_open()
        if self.threadless:
            self.work_inline(deadline)
        remaining = self.accumulator.wait_settled(serial, deadline)
        barriers = [handler.barrier() for handler in self.settlement.handlers if self._started]
        if self.threadless:
            self.work_inline(deadline)
        if remaining or not all(self._passed(barrier, deadline) for barrier in barriers):
            raise FlushTimeoutError(remaining, timeout or 0.0)

    def _passed(self, barrier: threading.Event, deadline: Deadline) -> bool:
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
        batches = self.accumulator.incomplete()
        stages = ("open", "queued", "sending", "waiting")
        memory = dict.fromkeys(stages, 0)
        counts = dict.fromkeys(stages, 0)
        for batch in batches:
            stage = batch.state.value
            if stage in counts:
                counts[stage] += 1
                memory[stage] += batch.held
        used = self.budget.used
        memory["callbacks"] = max(0, used - sum(memory.values()))
        accepted, delivered, failed = self.accumulator.accepted, self.counters["delivered"], self.counters["failed"]
        return Stats(
            accepted=accepted,
            delivered=delivered,
            failed=failed,
            retried=self.counters["retried"],
            pending=sum(batch.log_count for batch in batches),
            attempts=self.counters["attempts"],
            batches=counts,
            memory_limit=self.budget.limit,
            memory_used=used,
            memory_by_stage=memory,
            waiting_senders=self.budget.waiting,
            oldest_record_age=self.accumulator.oldest_age(),
            callbacks_pending=sum(handler.pending for handler in self.settlement.handlers),
            streams=self._stream_stats(batches),
        )

    def _stream_stats(self, batches: list[ProducerBatch]) -> Mapping[StreamKey, StreamStats]:
        pending: dict[StreamKey, tuple[int, int]] = {}
        for batch in batches:
            logs, held = pending.get(batch.key, (0, 0))
            pending[batch.key] = logs + batch.log_count, held + batch.held
        streams = {}
        counts = self.accumulator.stream_counts()
        for key in counts.keys() | pending.keys():
            logs, held = pending.get(key, (0, 0))
            known = counts.get(key)
            streams[key] = StreamStats(
                accepted=known.accepted if known else logs,
                delivered=known.delivered if known else 0,
                failed=known.failed if known else 0,
                pending=logs,
                pending_bytes=held,
            )
        return streams
