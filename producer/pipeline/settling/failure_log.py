"""FailureLog: failed batches in the log, thinned, so that an outage does not write more than it loses."""

from __future__ import annotations

import logging

from ...clock import Clock
from ...errors import AttemptError
from ..batching.batch import ProducerBatch
from .thinned_log import ThinnedLog

_log = logging.getLogger("producer.send_task")

#: Between two lines about records that are tried again and again, seconds.
_WAITING_INTERVAL = 60.0


class FailureLog:
    """Writes the first failure of each kind (project, logstore, code) at once, and the next ones in sums."""

    def __init__(self, clock: Clock) -> None:
        self._failed = ThinnedLog(clock)
        self._waiting = ThinnedLog(clock, _WAITING_INTERVAL)

    def report(self, batch: ProducerBatch, error: AttemptError) -> None:
        """``batch`` failed for ``error``."""
        self._write(self._failed, "failed", batch, error)

    def report_waiting(self, batch: ProducerBatch, error: AttemptError) -> None:
        """``batch`` will be tried until it is delivered, however long; nobody else would hear of it."""
        self._write(self._waiting, "are not delivered yet", batch, error)

    @staticmethod
    def _write(log: ThinnedLog, what: str, batch: ProducerBatch, error: AttemptError) -> None:
        silent = log.due((*batch.key[:2], error.code), batch.log_count)
        if silent is None:
            return
        _log.warning(
            "%s/%s: %d records %s after %d attempts: %s (request id %s)%s",
            *batch.key[:2],
            batch.log_count,
            what,
            batch.attempt_count,
            error,
            error.request_id or "none",
            f"; {silent} more {what} likewise since the last such line" if silent else "",
        )
