"""SendTask: makes one attempt to deliver a batch, and acts on its outcome."""

from __future__ import annotations

import math

from ...model.errors import (
    AttemptError,
    BodyTooLargeError,
    ProjectNotConfiguredError,
)
from ...model.interfaces import Delivery, Payload, Receipt, Sink
from ...model.metrics import Counters
from ...model.results import Attempt
from ...runtime.clock import Clock
from ...runtime.internal_threads import untraced
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ...text.plural import counted
from ..batching.accumulator import LogAccumulator
from ..batching.batch import BatchState, ProducerBatch
from ..batching.ready_batches import ReadyBatches
from ..settling.settlement import Settlement
from .destinations import Logstore
from .fair_queue import Report, Turn
from .gates import LONGEST_UNREACHABLE, Verdict, verdict_of
from .outage_log import OutageLog
from .retry_queue import RetryQueue
from .retry_rules import RetryRules
from .sequencing import Sequencer
from .split import split
from .traffic import Traffic

_log = get_logger("loghub.send_task")

_NOT_TRIED = Report(Verdict.NOT_TRIED)


class SendTask:
    """The work of an IO thread on a batch, which ends completed, in the retry queue, or split.

    :param sequencer: numbers the batches of idempotent streams.
    :param ready: the queue for the halves of a split batch.
    :ivar traffic: the counts of each destination.
    :ivar accepted_at: when the sink last acknowledged a batch, monotonic seconds.
    """

    def __init__(
        self,
        *,
        sink: Sink,
        clock: Clock,
        rules: RetryRules,
        sequencer: Sequencer,
        retry_queue: RetryQueue,
        accumulator: LogAccumulator,
        settlement: Settlement,
        counters: Counters,
        ready: ReadyBatches,
    ) -> None:
        self._sink = sink
        self._clock = clock
        self._rules = rules
        self._sequencer = sequencer
        self._retry_queue = retry_queue
        self._accumulator = accumulator
        self._settlement = settlement
        self._counters = counters
        self._ready = ready
        self._failures = RateLimitedLog(clock)
        self._outages = OutageLog(clock)
        self.traffic = Traffic()
        self.accepted_at = -math.inf

    def run(self, turn: Turn) -> Report:
        """Make one attempt for a batch. This call takes over its ownership.

        :returns: the finding about the destination.
        """
        batch = turn.batch
        try:
            if turn.last_since is not None:
                self._rules.take_last_chance(batch, turn.last_since)
            return self._attempt(batch, turn.logstore)
        except BaseException as error:  # a bug here or in a plug-in must not lose the record
            _log.exception("a bug in the producer or a plug-in; the batch fails")
            words = f"{type(error).__name__}: {error}"
            sent = batch.state is BatchState.SENDING
            self._settlement.fail(batch, self._settlement.attempt("InternalError", words, may_have_been_stored=sent))
            if not isinstance(error, Exception):
                raise
            return _NOT_TRIED

    def _attempt(self, batch: ProducerBatch, there: Logstore) -> Report:
        if not batch.move(BatchState.SENDING):
            return _NOT_TRIED
        started = self._clock.monotonic()
        if batch.history.attempt_count == 0 and not batch.history.first_attempt_at:
            batch.history.first_attempt_at = started
        timestamp_ms = int(self._clock.time() * 1000)
        payload = self._payload(batch)
        if batch.state is not BatchState.SENDING:  # completed by another thread meanwhile, maybe before it was encoded
            batch.drop_bytes()
            return _NOT_TRIED
        requested_at = started
        already_written = False
        try:
            if batch.key.order:
                self._sequencer.number(batch)
            requested_at = self._clock.monotonic()
            with untraced():
                receipt = self._sink.write(Delivery(batch.key, batch.pack_id, payload, batch.sequence))
            self._sequencer.accepted(batch)
        except AttemptError as refusal:
            seconds = self._clock.monotonic() - requested_at
            error = self._sequencer.error_of(batch, refusal)
            if error is not None:
                attempt = self._note(batch, timestamp_ms, started, error=error)
                self.traffic.failed(there.destination.name, error, attempt, len(payload.body), seconds)
                verdict = verdict_of(error, waits=self._rules.endless)
                self._after_failure(batch, error, there, verdict)
                return Report(verdict, seconds)
            receipt, already_written = Receipt(refusal.request_id, refusal.http_status), True
        else:
            seconds = self._clock.monotonic() - requested_at
        self.accepted_at = requested_at + seconds
        self._note(batch, timestamp_ms, started, receipt=receipt, already_written=already_written)
        self.traffic.delivered(there.destination.name, batch, len(payload.body), seconds)
        if self._outages.any:
            for place in (there.destination, there):
                self._outages.accepted(place.name)
        self._settlement.succeed(batch)
        return Report(Verdict.ACCEPTED, seconds)

    def _payload(self, batch: ProducerBatch) -> Payload:
        payload = batch.payload
        if payload is None:
            payload = self._sink.encode(batch.key, batch.pack_id, batch.records)
            batch.encode(payload)
        return payload

    def _note(
        self,
        batch: ProducerBatch,
        timestamp_ms: int,
        started: float,
        *,
        receipt: Receipt | None = None,
        error: AttemptError | None = None,
        already_written: bool = False,
    ) -> Attempt:
        self._counters.add("attempts", 1)
        outcome = receipt if error is None else error
        attempt = Attempt(
            success=error is None,
            request_id=outcome.request_id if outcome is not None else "",
            http_status=outcome.http_status if outcome is not None else None,
            error_code=error.code if error is not None else "",
            error_message=error.message if error is not None else "",
            timestamp_ms=timestamp_ms,
            duration_ms=(self._clock.monotonic() - started) * 1000,
            may_have_been_stored=error is not None and error.may_have_been_stored,
            already_written=already_written,
        )
        batch.history.note(attempt, error)
        return attempt

    def _after_failure(self, batch: ProducerBatch, error: AttemptError, there: Logstore, verdict: Verdict) -> None:
        if isinstance(error, BodyTooLargeError) and self._sequencer.may_split(batch):
            self._split(batch)
            return
        delay = self._delay(batch, error)
        if delay is None:
            self._fail(batch, error)
            return
        now = self._clock.monotonic()
        # an attempt costs nothing, and the project may be added at any moment
        if isinstance(error, ProjectNotConfiguredError):
            delay = min(delay, LONGEST_UNREACHABLE)
        due = now + delay
        self._rules.note_retry(batch, error)
        batch.rest()
        if not batch.move(BatchState.WAITING):
            return
        if not self._retry_queue.put(batch, min(due, self._rules.latest(batch))):
            self._keep_or_fail(batch, error)
            return
        self._counters.add("retried", batch.log_count)
        _log.debug("%s/%s: %s, next attempt in %.3f s", *batch.key[:2], error, due - now)
        if not error.immediate or delay:  # an immediate retry that helps is no outage
            place = there if verdict.to_logstore.hold else there.destination
            self._outages.failed(place.name, error, attempt=batch.history.attempt_count, delay=due - now)

    def _delay(self, batch: ProducerBatch, error: AttemptError) -> float | None:
        try:
            return self._rules.delay(batch, error)
        except Exception:  # noqa: BLE001  # the strategy is user code
            _log.exception("a strategy of the RetryPolicy raised; the batch fails")
            return None

    def _keep_or_fail(self, batch: ProducerBatch, error: AttemptError) -> None:
        if self._rules.endless:
            self._settlement.abandon(batch)
        else:
            self._fail(batch, error)

    def _fail(self, batch: ProducerBatch, error: AttemptError) -> None:
        self._log_failure(batch, error)
        self._settlement.fail(batch, keep=self._sequencer.undecided(batch))

    def _log_failure(self, batch: ProducerBatch, error: AttemptError) -> None:
        silent = self._failures.due((*batch.key[:2], error.code), batch.log_count)
        if silent is not None:
            _log.warning(
                "%s/%s: %s failed after %s: %s (request id %s)%s",
                *batch.key[:2],
                counted(batch.log_count, "record"),
                counted(batch.history.attempt_count, "attempt"),
                error,
                error.request_id or "none",
                f"; {silent} more failed likewise since the last such line" if silent else "",
            )

    def _split(self, batch: ProducerBatch) -> None:
        payload = batch.payload
        if payload is None:  # completed by another thread meanwhile
            return
        parts = split(batch, self._sink.decode(payload))
        if not parts.adopt(batch):
            return
        self._accumulator.replace(batch, parts.halves)
        batch.drop_bytes()
        batch.wake()
        message = "%s/%s: a batch of %d logs is too large for the server; splitting it in two"
        _log.info(message, *batch.key[:2], batch.log_count)
        for half in parts.halves:
            self._queue(half)

    def _queue(self, half: ProducerBatch) -> None:
        if not half.move(BatchState.QUEUED):
            return
        if self._accumulator.frozen:
            self._settlement.abandon(half)
        elif self._accumulator.may_send(half):
            self._ready.put(half)
