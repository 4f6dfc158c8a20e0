"""The graceful shutdown of a pipeline with a durable channel, under one absolute deadline.

``send`` raises as soon as the shutdown begins, and calls in progress are completed. Feeding, deliveries and retries
continue for half of the time. Without a timeout, the time is :attr:`.Pipeline.patience`. Then the feeder ends, no new
attempt starts, and attempts in flight get the rest of the time. Then these are cut off. Records that are not completed
stay in the channel, and their futures say so. In order: feeder → accumulator → retry queue → mover → IO pool → acks →
handlers → sink → channels.
"""

from __future__ import annotations

from ..pipeline.shutdown import CUT_GRACE, GRACE, Closer, graceful, join_handlers, network_deadline, retry_phase
from ..runtime.clock import Deadline
from ..runtime.loggers import get_logger
from ..text.plural import counted
from .feeder import PATIENCE
from .pipeline import DurablePipeline

_log = get_logger("loghub.shutdown")


class DurableCloser(Closer):
    """Closes a pipeline with a durable channel, one part after the other, by one deadline."""

    #: Undelivered records are in the channel, or were reported by the dead letters or the log.
    lost_records = pending_records = 0

    def __init__(self, durable: DurablePipeline) -> None:
        super().__init__(durable.pipeline)
        self._durable, self.threads = durable, durable.working_threads

    def begin(self) -> None:
        self._durable.admission.refusing = True

    def close(self, deadline: Deadline) -> tuple[int, tuple[str, ...]]:
        durable = self._durable
        self.begin()
        network = network_deadline(durable.pipeline, deadline)
        if durable.running:
            self._drain(network)
        stuck = self._end_deliveries(network)
        durable.acks.stop()
        if not durable.acks.thread.join(durable.clock, graceful(durable.clock, deadline)):
            stuck.append(durable.acks.thread.name)
        durable.leave_futures()
        stuck += join_handlers(durable.pipeline, deadline)
        self._log_remaining(durable.give_back())
        return 0, tuple(stuck)

    def release(self) -> None:
        """Raise the error of the sink, which :meth:`close` has closed in order."""
        if self._durable.sink_error is not None:
            raise self._durable.sink_error

    def _drain(self, deadline: Deadline) -> None:
        durable, pipeline = self._durable, self._pipeline
        phase = retry_phase(pipeline, deadline)
        durable.admission.wait_ended(phase)
        durable.feeder.wait_fed(durable.put, phase)
        pipeline.accumulator.wait_settled(pipeline.accumulator.seal_open(), phase)

    def _end_deliveries(self, deadline: Deadline) -> list[str]:
        """Stop feeding and sending, wait for attempts in flight, retain the rest; return the threads that did
        not end.
        """
        durable, pipeline = self._durable, self._pipeline
        clock = durable.clock
        durable.feeder.stop()
        pipeline.budget.close()
        # It may have just begun to wait for an event.
        patient = graceful(clock, deadline, PATIENCE + GRACE)
        stuck = [] if durable.feeder.thread.join(clock, patient) else [durable.feeder.thread.name]
        durable.leave_futures()  # for records that were not fed: attempts in flight may take all of the time
        pipeline.accumulator.wait_settled(pipeline.leave_unsent(), deadline)
        self._abandon_rest()
        pipeline.cut_off(Deadline.after(clock, 0.0))
        if not pipeline.mover.thread.join(clock, graceful(clock, deadline)):
            stuck.append(pipeline.mover.thread.name)
        return stuck + pipeline.io_pool.join(graceful(clock, Deadline.after(clock, 0.0), CUT_GRACE))

    def _abandon_rest(self) -> None:
        for batch in self._pipeline.accumulator.incomplete():
            self._pipeline.settlement.abandon(batch)

    def _log_remaining(self, left: int) -> None:
        durable = self._durable
        where = f"channel {durable.channel.name}"
        if left:
            events = counted(left, "event stays", "events stay")
            end = "for the next producer on it" if durable.survives_close else "and what is in memory is lost"
            _log.info("%s: closed; %s in %s %s", durable.name, events, where, end)
        else:
            _log.info("%s: closed; nothing is left in %s", durable.name, where)
