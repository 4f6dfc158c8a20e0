"""Settlement: completes each batch once, when its outcome is known.

The records' memory is returned to the budget, the result is set, and threads in ``result()`` wake up. If user code has
to be notified, the batch goes to a :class:`~.callbacks.BatchHandler`, which also returns the records' overhead.
"""

from __future__ import annotations

import enum

from ...model.errors import StreamStoppedError
from ...model.metrics import FAILED_BY_CODE, Counters, FewNames
from ...model.records import plain
from ...model.results import Attempt, Result
from ...runtime.clock import Clock
from ...runtime.loggers import get_logger
from ...text.plural import counted
from ..batching.accumulator import LogAccumulator
from ..batching.batch import BATCH_OVERHEAD, BatchState, ProducerBatch
from ..batching.memory import MemoryBudget, Refund
from ..batching.open_records import RECORD_OVERHEAD
from ..batching.ready_batches import ReadyBatches
from .backing import Backing, Body
from .callbacks import BatchHandler

_log = get_logger("loghub.handler")

#: Error codes that are counted each on its own.
_MOST_CODES = 50


class _Outcome(enum.Enum):
    """The outcome of a batch; the values are names of counters."""

    DELIVERED = "delivered"
    FAILED = "failed"
    #: Neither: its records are retained in the channel.
    LEFT = "left"
    #: Retained in the channel until its stream is resumed.
    PARKED = "parked"


def stopped_attempt(error: StreamStoppedError) -> Attempt:
    """Return the final attempt of a record that waited behind a permanent failure."""
    at = error.first.attempts[-1].timestamp_ms if error.first.attempts else 0
    return Attempt(success=False, error_code="StreamStopped", error_message=str(error), timestamp_ms=at)


class Settlement:
    """Completes each batch once; the first caller decides.

    :param ready: the queue for a batch that waited behind another one of its stream.
    :param clock: the time of abandoned attempts.
    :param backing: notified of every outcome.
    """

    def __init__(
        self,
        name: str,
        budget: MemoryBudget,
        accumulator: LogAccumulator,
        counters: Counters,
        ready: ReadyBatches,
        clock: Clock,
        backing: Backing,
    ) -> None:
        self._budget = budget
        self._ready = ready
        self._clock = clock
        self._backing = backing
        self._accumulator = accumulator
        self._counters = counters
        self._codes = FewNames(_MOST_CODES)
        self.success = BatchHandler(f"{name}-success", budget)
        self.failure = BatchHandler(f"{name}-failure", budget)

    @property
    def handlers(self) -> tuple[BatchHandler, BatchHandler]:
        """Both handlers, in the order in which they are closed."""
        return self.success, self.failure

    def succeed(self, batch: ProducerBatch) -> None:
        """Complete a batch that the server acknowledged."""
        self._settle(batch, _Outcome.DELIVERED)

    def fail(self, batch: ProducerBatch, attempt: Attempt | None = None, *, keep: bool = False) -> None:
        """Fail ``batch`` after the attempts that it has recorded, for the reason in ``attempt``.

        An ordered stream stops: the batches behind it fail too, or are parked.

        :param keep: True to park the batch itself, if its stream is ordered and its records are kept.
        """
        if not batch.key.order:
            self._settle(batch, _Outcome.FAILED, attempt)
            return
        error = StreamStoppedError(plain(batch.key), batch.history.result(successful=False, last=attempt))
        # First of all, so that code notified of the failure finds the stream stopped.
        behind = self._accumulator.stop(batch, error)
        self._settle(batch, _Outcome.PARKED if keep and self._backing.keeps else _Outcome.FAILED, attempt)
        for waiting in behind:
            self._settle(waiting, self._fate_behind(waiting, batch), stopped_attempt(error))

    def _fate_behind(self, waiting: ProducerBatch, failed: ProducerBatch) -> _Outcome:
        # The rest of a split list fails with its failed part.
        return _Outcome.FAILED if not self._backing.keeps or waiting.shares_send(failed) else _Outcome.PARKED

    def abandon(self, batch: ProducerBatch) -> bool:
        """Fail or retain ``batch`` because the producer closed; return False if it was completed before."""
        # The state is not checked first: an IO thread may begin an attempt in between.
        return self.abandon_unsent(batch) or self._end(batch, self.abandoned(may_have_been_stored=True))

    def abandon_unsent(self, batch: ProducerBatch) -> bool:
        """Fail or retain ``batch`` unless it is in an attempt or was completed; return False in these cases."""
        return self._end(batch, self.abandoned(), unless=BatchState.SENDING)

    def abandoned(self, *, may_have_been_stored: bool = False) -> Attempt:
        """Return the final attempt of a record that was not delivered when the producer closed."""
        return self.attempt(*self._backing.abandonment, may_have_been_stored=may_have_been_stored)

    def forked_attempt(self) -> Attempt:
        """Return the final attempt of records that the parent process delivers."""
        return self.attempt("ForkedAway", "the record belongs to the parent process, which delivers it")

    def attempt(self, code: str, message: str, *, may_have_been_stored: bool = False) -> Attempt:
        """Return the final attempt of a record that fails for a reason on this side."""
        return Attempt(
            success=False,
            error_code=code,
            error_message=message,
            timestamp_ms=int(self._clock.time() * 1000),
            may_have_been_stored=may_have_been_stored,
        )

    def _end(self, batch: ProducerBatch, attempt: Attempt, *, unless: BatchState | None = None) -> bool:
        return self._settle(batch, _Outcome.LEFT if self._backing.keeps else _Outcome.FAILED, attempt, unless)

    def _settle(
        self, batch: ProducerBatch, outcome: _Outcome, last: Attempt | None = None, unless: BatchState | None = None
    ) -> bool:
        successful = outcome is _Outcome.DELIVERED
        to = BatchState.SUCCEEDED if successful else BatchState.FAILED
        result = batch.history.result(successful=successful, last=last)
        # Read first: once the batch is completed, an IO thread may drop its bytes.
        body = Body(batch.records, batch.payload)
        if not batch.settle(to, result, unless=unless):
            return False
        has_listeners = batch.has_listeners
        overhead = min(batch.held, BATCH_OVERHEAD + RECORD_OVERHEAD * batch.sends) if has_listeners else 0
        released, batch.held = batch.held - overhead, overhead
        self._counters.add(outcome.value, batch.log_count)
        if outcome is _Outcome.FAILED:
            self._counters.add(FAILED_BY_CODE + self._codes.of(result.error_code or "unknown"), batch.log_count)
        free = self._notify_backing(batch, outcome, result, released, body)
        batch.drop_bytes()
        if has_listeners:
            self._budget.release(free)
            free = 0
            (self.success if successful else self.failure).put(batch)
        delivered = None if outcome in (_Outcome.LEFT, _Outcome.PARKED) else successful
        successor = self._accumulator.forget(batch, delivered=delivered, memory=free)
        if successor is not None:
            self._ready.put(successor)
        return True

    def _notify_backing(self, batch: ProducerBatch, outcome: _Outcome, result: Result, memory: int, body: Body) -> int:
        """Notify the backing; return the bytes of the records' memory that are free now.

        The backing returns the memory of failed records itself, when it no longer needs them.
        """
        refund = Refund(self._budget, memory) if outcome is _Outcome.FAILED else None
        try:
            if refund is not None:
                self._backing.failed(batch, result, refund, body)
            elif outcome is _Outcome.DELIVERED:
                self._backing.delivered(batch)
            elif outcome is _Outcome.PARKED:
                self._backing.parked(batch)
        except Exception:  # noqa: BLE001  # whatever fails there, the batch is completed
            _log.exception("a bug: the outcome of a batch of %s was not recorded", counted(batch.log_count, "log"))
            if refund is not None:
                refund.pay()
        return memory if refund is None else 0
