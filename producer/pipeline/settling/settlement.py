"""Settlement: each batch is settled once, where its outcome is known.

The records' memory goes back to the budget, the result is set, whoever waits in ``result()`` goes on. If users are to
be told, the batch goes to a :class:`~.callbacks.BatchHandler`, which also gives back the records' overhead.
"""

from __future__ import annotations

import enum

from ...model.errors import StreamStoppedError
from ...model.metrics import FAILED_BY_CODE, Counters
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
from .backing import Backing
from .callbacks import BatchHandler

_log = get_logger("loghub.handler")


class _Outcome(enum.Enum):
    """What became of a batch; the values are names of counters."""

    DELIVERED = "delivered"
    FAILED = "failed"
    #: Neither: it stays where it is kept.
    LEFT = "left"
    #: Likewise, until its stream goes on.
    PARKED = "parked"


def attempt_of(error: StreamStoppedError) -> Attempt:
    """What stands at the end of the attempts of a record that waited behind one that failed for good."""
    at = error.first.attempts[-1].timestamp_ms if error.first.attempts else 0
    return Attempt(success=False, error_code="StreamStopped", error_message=str(error), timestamp_ms=at)


class Settlement:
    """Settles each batch once, whoever asks first.

    :param ready: takes a batch that was waiting for another one of its stream.
    :param clock: tells when a batch was given up.
    :param backing: hears of every outcome.
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
        self.success = BatchHandler(f"{name}-success", budget)
        self.failure = BatchHandler(f"{name}-failure", budget)

    @property
    def handlers(self) -> tuple[BatchHandler, BatchHandler]:
        """Both handlers, in the order in which they are closed."""
        return self.success, self.failure

    def succeed(self, batch: ProducerBatch) -> None:
        """The server acknowledged ``batch``."""
        self._settle(batch, _Outcome.DELIVERED)

    def fail(self, batch: ProducerBatch, attempt: Attempt | None = None, *, keep: bool = False) -> None:
        """``batch`` is given up after the attempts that it has noted, and for the reason that ``attempt`` gives.

        An ordered stream stops: what waits behind it is failed too, or parked.

        :param keep: whether the batch itself, of an ordered stream, is rather parked, if its records are kept.
        """
        if not batch.key.order:
            self._settle(batch, _Outcome.FAILED, attempt)
            return
        error = StreamStoppedError(plain(batch.key), batch.history.result(successful=False, last=attempt))
        # Before anybody hears of the failure, so that whoever does finds the stream stopped.
        behind = self._accumulator.stop(batch, error)
        self._settle(batch, _Outcome.PARKED if keep and self._backing.keeps else _Outcome.FAILED, attempt)
        for waiting in behind:
            self._settle(waiting, self._fate_behind(waiting, batch), attempt_of(error))

    def _fate_behind(self, waiting: ProducerBatch, failed: ProducerBatch) -> _Outcome:
        # The rest of a list that was cut fails with the part of it that did.
        return _Outcome.FAILED if not self._backing.keeps or waiting.shares_send(failed) else _Outcome.PARKED

    def abandon(self, batch: ProducerBatch) -> bool:
        """Fail or leave ``batch`` because the producer closed; False if it was settled before."""
        # Not by a look at its state before: an IO thread may take it to the server in between.
        return self.abandon_unsent(batch) or self._end(batch, self.abandoned(may_have_been_stored=True))

    def abandon_unsent(self, batch: ProducerBatch) -> bool:
        """As :meth:`abandon`, unless it is with the server at this moment: False as well."""
        return self._end(batch, self.abandoned(), unless=BatchState.SENDING)

    def abandoned(self, *, may_have_been_stored: bool = False) -> Attempt:
        """What stands at the end of the attempts of a record that was not delivered when the producer closed."""
        said = self._backing.abandonment
        return self._attempt(said.code, said.message, may_have_been_stored=may_have_been_stored)

    def forked_away(self) -> Attempt:
        """What stands at the end of the attempts of a record that belongs to the parent of this process."""
        return self._attempt("ForkedAway", "the record belongs to the parent process, which delivers it")

    def _attempt(self, code: str, message: str, *, may_have_been_stored: bool = False) -> Attempt:
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
        if not batch.settle(to, result, unless=unless):
            return False
        has_listeners = batch.has_listeners
        overhead = min(batch.held, BATCH_OVERHEAD + RECORD_OVERHEAD * batch.sends) if has_listeners else 0
        released, batch.held = batch.held - overhead, overhead
        self._counters.add(outcome.value, batch.log_count)
        if outcome is _Outcome.FAILED:
            self._counters.add(FAILED_BY_CODE + (result.error_code or "unknown"), batch.log_count)
        free = self._announce(batch, outcome, result, released)
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

    def _announce(self, batch: ProducerBatch, outcome: _Outcome, result: Result, memory: int) -> int:
        """Tell the listener; how much of the memory of the records is free now: of those that failed it gives that back
        when it needs them no longer.
        """
        refund = Refund(self._budget, memory) if outcome is _Outcome.FAILED else None
        try:
            if refund is not None:
                self._backing.failed(batch, result, refund)
            elif outcome is _Outcome.DELIVERED:
                self._backing.delivered(batch)
            elif outcome is _Outcome.PARKED:
                self._backing.parked(batch)
        except Exception:  # noqa: BLE001  # whatever goes wrong there, the batch is settled
            _log.exception("a bug: the outcome of a batch of %s was not noted", counted(batch.log_count, "log"))
            if refund is not None:
                refund.pay()
        return memory if refund is None else 0
