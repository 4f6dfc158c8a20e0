"""Pipeline: the stages of one producer in one process.

``client`` makes one, and a new one after a fork. The pipeline knows no protocol and no disk, only a sink. The file is
long because everything that starts, joins and ends the stages is in one place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..model.config import ProducerConfig
from ..model.errors import FlushTimeoutError, ProducerError, StreamStoppedError
from ..model.interfaces import Sink
from ..model.metrics import Counters, Stats
from ..model.records import StreamKey
from ..runtime.clock import LOOK_AGAIN, Clock, Deadline, Latch
from ..runtime.internal_threads import at_work
from ..runtime.locks import RLock
from ..runtime.loggers import get_logger
from ..text.plural import counted
from .admission import Admission
from .batching.batch import BatchState, ProducerBatch
from .batching.ready_batches import ReadyBatches
from .owner import Owner
from .sending.fair_queue import FairQueue
from .sending.io_pool import IOThreadPool
from .sending.mover import Mover
from .sending.retry_queue import RetryQueue
from .sending.retry_rules import RetryRules
from .sending.send_task import SendTask
from .sending.sequencing import Sequencer
from .settling.backing import Backing
from .settling.leftovers import Fallback, Leftovers
from .settling.settlement import Settlement
from .snapshot import snapshot
from .threads import StageThread

#: With ``drain_timeout_ms=0``, ``close`` retries nothing, but waits this long for the attempts in flight, seconds.
LEAST_PATIENCE = 0.5

_log = get_logger("loghub.pipeline")


class Pipeline:
    """The stages of one producer in one process: a :class:`~.sender.Sender`, and the threads of its admission.

    :param name: the prefix of the threads' names.
    :param threadless: True to start no threads: the thread that flushes or closes does the work (see
        :meth:`work_inline`).
    :param backing: the place where the records are kept besides.
    :param fallback: gets the records of failed batches, if they have no backing.
    :ivar owner: the producer.
    """

    def __init__(
        self,
        config: ProducerConfig,
        sink: Sink,
        clock: Clock,
        name: str,
        *,
        owner: Owner | None = None,
        threadless: bool = False,
        backing: Backing | None = None,
        counters: Counters | None = None,
        fallback: Fallback | None = None,
    ) -> None:
        self.clock = clock
        self.sink = sink
        self.owner = owner or Owner()
        self.name = name
        self.counters = Counters() if counters is None else counters
        leftovers = None if fallback is None else Leftovers(fallback, sink, clock)
        self._backing = backing = backing or leftovers or Backing()
        ready = ReadyBatches(clock)
        self.admission = Admission(config, clock, sink, ready, self, kept=backing.keeps)
        self.budget, self.accumulator = self.admission.budget, self.admission.accumulator
        self.retry_queue = RetryQueue(clock)
        self.settlement = Settlement(name, self.budget, self.accumulator, self.counters, ready, clock, backing)
        if leftovers is not None:
            leftovers.enqueue = self.settlement.failure.put_call
        rules = RetryRules(config, clock, endless=backing.keeps)
        self.task = SendTask(
            sink=sink,
            clock=clock,
            rules=rules,
            sequencer=Sequencer(config.buckets, backing.journal),
            retry_queue=self.retry_queue,
            accumulator=self.accumulator,
            settlement=self.settlement,
            counters=self.counters,
            ready=ready,
        )
        self.io_pool = IOThreadPool(
            name,
            config.io_thread_count,
            ready,
            FairQueue(config, rules),
            sink=sink,
            task=self.task,
            settlement=self.settlement,
            retry_queue=self.retry_queue,
            clock=clock,
        )
        self.mover = Mover(
            name,
            self.accumulator,
            self.retry_queue,
            self.io_pool,
            clock,
            self.owner,
            config.stats_interval_ms / 1000 or math.inf,
        )
        # Guards the start of the threads. Not an OwnedLock: a signal handler that interrupts a start may start them
        # itself.
        self._starting = RLock()
        #: True if the threads could not start.
        self.late = False
        self._last = False  # True if this pipeline is never closed, so that each send completes before it returns
        self.drain_timeout = config.drain_timeout_ms / 1000
        #: How long ``close`` without a timeout waits for the next acknowledgement, seconds.
        self.patience = max(self.drain_timeout, LEAST_PATIENCE)
        #: True if the caller requested it, or the interpreter starts no more threads: a thread that flushes or closes
        #: does the work.
        self.threadless = threadless

    def hurry(self) -> None:
        """Seal all open batches soon, on the mover's thread."""
        if self.threadless:
            self.accumulator.seal_open()
        else:
            self.mover.hurry()

    def watch(self) -> None:
        self.retry_queue.wake()

    def start(self) -> None:
        with self._starting:
            if self.admission.started:
                return
            if not self.owner.begins():
                self.threadless = self.late = self._last = True
            if not self.threadless:
                self._start_threads()
            self.admission.started = True

    def _start_threads(self) -> None:
        try:
            for handler in self.settlement.handlers:
                handler.thread.start()
            self.io_pool.start()
            self.mover.thread.start()
        except RuntimeError as error:
            self.threadless = self.late = True
            reason = "the interpreter is shutting down" if "shutdown" in str(error) else error
            _log.warning("%s: no threads can be started (%s): %s", self.name, reason, self._backing.without_threads)

    def seal_stream(self, key: StreamKey) -> None:
        self.accumulator.seal_stream(key)
        if self.late:
            self.work()

    def resubmit(self, batch: ProducerBatch) -> None:
        """Queue a batch from the retry queue for another attempt."""
        if batch.move(BatchState.QUEUED):
            self.io_pool.submit(batch)

    def stopped(self, key: StreamKey) -> StreamStoppedError | None:
        return self.accumulator.stopped(key)

    def resume(self, key: StreamKey) -> None:
        self.accumulator.resume(key)

    def cut_off(self, deadline: Deadline) -> None:
        """Make the sink end its attempts at the deadline. A batch that was completed before stays as it is."""
        try:
            self.sink.hurry(deadline)
        except Exception:  # noqa: BLE001  # a sink may be user code; its attempts end by their own limits
            _log.exception("%s: the sink could not cut off its attempts", self.name)

    def leave_unsent(self) -> int:
        """Start no more attempts, and abandon all batches that are not in an attempt.

        :returns: a serial that is higher than those of all remaining batches.
        """
        self.accumulator.freeze()
        self.accumulator.close()
        self.mover.stop()
        self.io_pool.stop_at_once()
        self.retry_queue.close()
        # A thread whose attempt has just failed may still hold its batch, and no other thread would complete it.
        for batch in self.accumulator.incomplete():
            self.settlement.abandon_unsent(batch)
        return self.accumulator.seal_open()

    def abandon_in_child(self) -> None:
        """Fail all batches in a forked child: the records belong to the parent, which sends them."""
        attempt = self.settlement.forked_attempt()
        for batch in self.accumulator.incomplete_in_child():
            batch.abandon_in_child(batch.history.result(successful=False, last=attempt))

    def on_handler_thread(self) -> bool:
        settlement = self.settlement
        return settlement.success.thread.current or settlement.failure.thread.current

    def flush(self, timeout: float | None) -> None:
        """Send the open batches, then wait until everything accepted before is completed and its callbacks have run.

        :param timeout: seconds; None to wait forever.
        :raises FlushTimeoutError: the timeout has passed; the deliveries continue.
        :raises ProducerError: called by a signal handler that interrupted a call of the producer on this thread.
        """
        self.flush_until(Deadline.after(self.clock, timeout), timeout)

    def flush_until(self, deadline: Deadline, timeout: float | None) -> None:
        self.refuse_callback("flush")
        self.refuse_own_threads("flush")
        serial = self.accumulator.seal_open()
        if self.threadless:
            self.work_inline(deadline)
        remaining = self.accumulator.wait_settled(serial, deadline)
        barriers = [handler.barrier() for handler in self.settlement.handlers if self.admission.started]
        if self.threadless:
            self.work_inline(deadline)
        if remaining or not all(self.passed(barrier, deadline) for barrier in barriers):
            raise FlushTimeoutError(remaining, timeout or 0.0)

    def refuse_callback(self, call: str) -> None:
        """Refuse a call that would wait for its own thread.

        :raises ProducerError: the caller is a callback.
        """
        if self.on_handler_thread():
            raise ProducerError(f"{call} inside a callback would wait for itself: call it on another thread")

    def refuse_own_threads(self, call: str, others: Iterable[StageThread] = ()) -> None:
        """Refuse a call that waits for the threads on one of them.

        :param others: threads that work for this pipeline besides its own.
        :raises ProducerError: a sink, a retry strategy or a channel makes the call.
        """
        for thread in (*self.io_pool.threads, self.mover.thread, *others):
            if thread.current:
                raise ProducerError(
                    f"{call} on {thread.name}, where the producer called this code, would wait for itself: call it on "
                    "another thread, and do not wait for that"
                )

    def passed(self, barrier: Latch, deadline: Deadline) -> bool:
        """Wait for ``barrier``; return True if it was set in time."""
        left = deadline.remaining(self.clock)
        while not barrier.wait(LOOK_AGAIN if left is None else min(left, LOOK_AGAIN)):
            if deadline.expired(self.clock) or (left is not None and left <= LOOK_AGAIN):
                return False
            left = None if left is None else left - LOOK_AGAIN
        return True

    def work(self) -> None:
        if self._last:
            self._deliver_now()
            return
        with at_work():
            self.mover.run_once()
            while self.io_pool.run_next():
                pass
            for handler in self.settlement.handlers:
                while handler.run_next():
                    pass

    def _deliver_now(self) -> None:
        self.cut_off(Deadline.after(self.clock, self.drain_timeout))
        try:
            self.flush(self.drain_timeout)
        except FlushTimeoutError:
            lost = sum(batch.log_count for batch in self.accumulator.incomplete())
            what = "sent after the interpreter began to exit"
            _log.error("%s: %s lost", self.name, counted(lost, f"record {what} is", f"records {what} are"))

    def work_inline(self, deadline: Deadline) -> None:
        """Do the work of all stages on the caller's thread until nothing is left, or the deadline."""
        while not deadline.expired(self.clock):
            with at_work():
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
        destinations = self.task.traffic.added_to(self.io_pool.stats())
        return snapshot(self.budget, self.accumulator, destinations, self.settlement, self.counters, self.sink)
