"""FailureLog: logs failed batches, rate-limited, so that an outage does not flood the log."""

from __future__ import annotations

from ...model.errors import AttemptError
from ...runtime.clock import Clock
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ..batching.batch import ProducerBatch

_log = get_logger("loghub.send_task")


class FailureLog:
    """Logs the first failure of each kind (project, logstore, code) at once, and the following ones as sums."""

    def __init__(self, clock: Clock) -> None:
        self._failed = RateLimitedLog(clock)

    def report(self, batch: ProducerBatch, error: AttemptError) -> None:
        """Log that ``batch`` failed with ``error``, if a line is due."""
        silent = self._failed.due((*batch.key[:2], error.code), batch.log_count)
        if silent is None:
            return
        _log.warning(
            "%s/%s: %s failed after %s: %s (request id %s)%s",
            *batch.key[:2],
            _counted(batch.log_count, "record"),
            _counted(batch.history.attempt_count, "attempt"),
            error,
            error.request_id or "none",
            f"; {silent} more failed likewise since the last such line" if silent else "",
        )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
