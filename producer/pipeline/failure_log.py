"""FailureLog: failed batches in the log, thinned, so that an outage does not write more than it loses."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict

from ..clock import Clock
from ..errors import AttemptError
from .batch import ProducerBatch

_log = logging.getLogger("producer.send_task")

#: Of failures of one logstore with one code, at most one line is written in this time, seconds.
INTERVAL = 10.0
_MAX_KINDS = 1000

_Kind = tuple[str, str, str]


class FailureLog:
    """Writes the first failure of each kind (project, logstore, code) at once, and the next ones in sums."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards _kinds
        #: When the last line was written, and the records that failed silently since.
        self._kinds: OrderedDict[_Kind, tuple[float, int]] = OrderedDict()

    def report(self, batch: ProducerBatch, error: AttemptError) -> None:
        """``batch`` failed for ``error``."""
        silent = self._due((*batch.key[:2], error.code), batch.log_count)
        if silent is None:
            return
        _log.warning(
            "%s/%s: %d records failed after %d attempts: %s (request id %s)%s",
            *batch.key[:2],
            batch.log_count,
            batch.attempt_count,
            error,
            error.request_id or "none",
            f"; {silent} more failed likewise since the last such line" if silent else "",
        )

    def _due(self, kind: _Kind, records: int) -> int | None:
        """The records that failed silently before, if a line is due; else None."""
        now = self._clock.monotonic()
        with self._lock:
            written, silent = self._kinds.get(kind, (now - INTERVAL, 0))
            if now - written < INTERVAL:
                self._kinds[kind] = written, silent + records
                return None
            self._kinds[kind] = now, 0
            if len(self._kinds) > _MAX_KINDS:
                self._kinds.popitem(last=False)
        return silent
