"""The graceful shutdown of a pipeline, under one absolute deadline.

It ends the stages in the order in which records pass them::

    accumulator      from then on send raises
    retry queue      retries continue for half of the time, then every waiting batch gets one last attempt at once
    mover, IO pool, success handler, failure handler, sink

Records that remain at the deadline fail with a named error, and the attempts in flight are cut off.

``close`` without a timeout ends :attr:`.Pipeline.patience` after the last acknowledgement: a slow server gets the time
that it needs, and a silent one no more than at the exit of the interpreter.
"""

from __future__ import annotations

import threading

from ..model.errors import CloseTimeoutError
from ..model.owned_lock import OwnedLock
from ..runtime.clock import LOOK_AGAIN, Clock, Deadline, WaitingRoom
from ..runtime.loggers import get_logger
from ..text.plural import counted
from .batching.batch import BatchState
from .pipeline import Pipeline
from .threads import StageThread

_log = get_logger("loghub.shutdown")

#: How long each stage's threads may take to end after the deadline, seconds. An idle thread ends within this time, so
#: only hanging threads are reported.
GRACE = 0.05
#: The same for an IO thread whose attempt was cut off: it may be waiting for name resolution.
CUT_GRACE = 0.3


class Closer:
    """The steps to close a pipeline; here of one whose records exist only in memory.

    :ivar threads: threads that work besides the pipeline's own.
    """

    threads: tuple[StageThread, ...] = ()

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def begin(self) -> None:
        """Refuse sends, and seal all open batches; wait for nothing."""
        self._pipeline.admission.close()

    def close(self, deadline: Deadline) -> tuple[int, tuple[str, ...]]:
        """Close every stage; called again only after an interrupt.

        :returns: the number of records that failed because of the deadline, and the threads that did not end.
        """
        return close_pipeline(self._pipeline, deadline)

    def release(self) -> None:
        """Close the user's objects; called once, after :meth:`close`. Its error is reported."""
        self._pipeline.sink.close()

    @property
    def lost_records(self) -> int:
        """The number of records that failed so far and are kept nowhere."""
        return self._pipeline.counters["failed"]

    @property
    def pending_records(self) -> int:
        """The number of records that would be lost if the process ended at this moment."""
        return sum(batch.log_count for batch in self._pipeline.accumulator.incomplete())


class Shutdown:
    """Closes a pipeline once, for any number of callers on any threads.

    :ivar closer: the steps; by default those of a pipeline whose records exist only in memory.
    """

    def __init__(self, pipeline: Pipeline, closer: Closer | None = None) -> None:
        self._pipeline = pipeline
        self.closer = closer or Closer(pipeline)
        self._room = WaitingRoom(pipeline.clock, LOOK_AGAIN)
        self._lock = OwnedLock()  # guards everything below
        self._begun = False
        self._performer: object | None = None  # identifies the call that closes at this moment
        self._thread = 0  # the ident of its thread
        self._ended = False

    @property
    def begun(self) -> bool:
        """True if a caller closes, or has closed, the pipeline."""
        return self._begun

    @property
    def ended(self) -> bool:
        """True if nothing is left to close; False also after an interrupted ``close``."""
        return self._ended

    def close(self, timeout: float | None) -> None:
        """Close, or wait for the call that does, and take over if that is interrupted.

        :param timeout: seconds; None to wait :attr:`.Pipeline.patience` for each acknowledgement.
        :raises CloseTimeoutError: ``timeout`` has passed; the remaining records failed.
        :raises ProducerError: called by a sink, a channel or a strategy on a thread that it would wait for.
        """
        self._pipeline.refuse_own_threads("close", self.closer.threads)
        if self._performer is not None and self._thread == threading.get_ident():
            return  # called by a sink or a channel that is being closed
        deadline = Deadline.after(self._pipeline.clock, timeout)
        performer = object()
        failed, stuck, refused = 0, tuple[str, ...](), None
        try:
            # a callback never waits for another thread, which may wait for the callback
            if self._pipeline.on_handler_thread():
                if not self._begin_or_ended(performer):
                    _log.warning(
                        "%s: close was called in a callback while another thread closes; the callback does not wait",
                        self._pipeline.name,
                    )
                    return
            else:
                self._room.wait_until(lambda: self._begin_or_ended(performer), deadline)
            if self._performer is performer:
                failed, stuck = self.closer.close(deadline)
                refused = self._release()
        finally:  # after an interrupt, the next call of close does the rest
            self._end_performing(performer)
        if timeout is not None and (not self._ended or failed or stuck):
            raise CloseTimeoutError(timeout, failed, stuck) from refused
        if stuck:
            _log.warning("%s: closed; threads that did not end: %s", self._pipeline.name, ", ".join(stuck))
        if refused is not None:
            raise refused

    def _release(self) -> Exception | None:
        """Close the sink, once; its error is for this caller, since all else is closed."""
        try:
            self.closer.release()
        except Exception as error:  # noqa: BLE001  # a sink may be user code; raised once the others may continue
            return error
        finally:
            self._ended = True
            self._pipeline.owner.closed()
        return None

    def _begin_or_ended(self, performer: object) -> bool:
        """Begin to close unless another call does; return True if there is no call to wait for."""
        with self._lock:
            self._begun = True
            if self._performer is None and not self._ended:
                self._performer, self._thread = performer, threading.get_ident()
            return self._ended or self._performer is performer

    def _end_performing(self, performer: object) -> None:
        with self._lock:
            if self._performer is performer:
                self._performer = None
        self._room.wake_all()

    def wait_for_callbacks(self, timeout: float) -> bool:
        """Wait a little longer for callbacks, after a :meth:`close` that raised.

        :param timeout: seconds.
        :returns: True if all callbacks have run.
        """
        clock = self._pipeline.clock
        deadline = Deadline.after(clock, timeout)
        return all(handler.thread.join(clock, deadline) for handler in self._pipeline.settlement.handlers)


def close_pipeline(pipeline: Pipeline, deadline: Deadline) -> tuple[int, tuple[str, ...]]:
    """Close every stage of ``pipeline`` except the sink, as :meth:`Closer.close` does."""
    begun = pipeline.clock.monotonic()
    if pipeline.threadless:
        deadline = network_deadline(pipeline, deadline)
        pipeline.cut_off(deadline)  # the attempts are made on this thread
    if not pipeline.drain_timeout:  # first, else a failed attempt of an open batch would be repeated
        pipeline.retry_queue.refuse()
    pipeline.admission.close()
    _retry_for_a_while(pipeline, deadline)
    pipeline.io_pool.ignore_gates()
    _end_waiting(pipeline)
    pipeline.mover.stop()
    if pipeline.threadless:
        pipeline.work_inline(deadline)
    serial = pipeline.accumulator.seal_open()
    _wait_delivered(pipeline, serial, deadline, begun)
    abandoned = _abandon_rest(pipeline)
    pipeline.io_pool.stop()
    pipeline.cut_off(Deadline.after(pipeline.clock, 0.0))
    return abandoned, _join(pipeline, deadline)


def network_deadline(pipeline: Pipeline, deadline: Deadline) -> Deadline:
    """Return the deadline; if there is none, the end of the pipeline's patience."""
    return deadline if deadline.at is not None else Deadline.after(pipeline.clock, pipeline.patience)


def retry_phase(pipeline: Pipeline, deadline: Deadline) -> Deadline:
    """Return until when retries continue as usual: for ``drain_timeout_ms``, or half of the time if that is less.

    Without this phase, one refusal by a busy server would fail the last records.
    """
    left = network_deadline(pipeline, deadline).remaining(pipeline.clock) or 0.0
    return Deadline.after(pipeline.clock, min(pipeline.drain_timeout, left / 2))


def _wait_delivered(pipeline: Pipeline, serial: int, deadline: Deadline, begun: float) -> None:
    """Wait for the batches below ``serial``: until the deadline, or without one as long as batches are acknowledged."""

    def end() -> Deadline:
        return (
            deadline if deadline.at is not None else Deadline(max(begun, pipeline.task.accepted_at) + pipeline.patience)
        )

    while pipeline.accumulator.wait_settled(serial, end()) and not end().expired(pipeline.clock):
        pass


def _retry_for_a_while(pipeline: Pipeline, deadline: Deadline) -> None:
    phase = retry_phase(pipeline, deadline)
    serial = pipeline.accumulator.seal_open()
    if pipeline.threadless:
        pipeline.work_inline(phase)
    pipeline.accumulator.wait_settled(serial, phase)


def _end_waiting(pipeline: Pipeline) -> None:
    """Give each batch that waits for a retry its last attempt; may be called again."""
    pipeline.retry_queue.close()
    for batch in pipeline.accumulator.incomplete():
        if batch.state is BatchState.WAITING:
            pipeline.resubmit(batch)


def _abandon_rest(pipeline: Pipeline) -> int:
    """Fail the batches that are not completed. The pool refuses the halves of a batch that is being split."""
    pipeline.accumulator.freeze()
    rest = pipeline.accumulator.incomplete()
    records = sum(batch.log_count for batch in rest if pipeline.settlement.abandon(batch))
    if records:
        failed = counted(records, "record was not delivered and failed", "records were not delivered and failed")
        _log.error("%s: closed at its deadline: %s", pipeline.name, failed)
    return records


def _join(pipeline: Pipeline, deadline: Deadline) -> tuple[str, ...]:
    clock = pipeline.clock
    mover = pipeline.mover.thread
    stuck = [] if mover.join(clock, graceful(clock, deadline)) else [mover.name]
    stuck += pipeline.io_pool.join(graceful(clock, Deadline.after(clock, 0.0), CUT_GRACE))
    return (*stuck, *join_handlers(pipeline, deadline))


def join_handlers(pipeline: Pipeline, deadline: Deadline) -> list[str]:
    """Let the handlers run the remaining callbacks and end; return the names of the threads that did not."""
    clock, stuck = pipeline.clock, []
    for handler in pipeline.settlement.handlers:
        handler.stop()
        if not handler.thread.started:
            while handler.run_next():
                pass
        if not handler.thread.join(clock, graceful(clock, deadline)):
            stuck.append(handler.thread.name)
    return stuck


def graceful(clock: Clock, deadline: Deadline, grace: float = GRACE) -> Deadline:
    """Return ``deadline``, but at least ``grace`` seconds from now."""
    return deadline if deadline.at is None else Deadline(max(deadline.at, clock.monotonic() + grace))
