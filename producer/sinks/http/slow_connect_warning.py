"""A warning about a destination that has never responded, while its first attempts wait.

A failure is logged only once an attempt has failed. A server, proxy or firewall that accepts everything and stays
silent fails after its timeout: by default ten seconds for a connection, and sixty for a response. A wrong port or host
is often of this kind. There is no warning about a destination that has responded before.
"""

from __future__ import annotations

from ...runtime.clock import Clock, Deadline
from ...runtime.internal_threads import at_work
from ...runtime.loggers import get_logger
from .attempts import Attempt, Attempts

_log = get_logger("loghub.http")

#: The silence of a destination before the warning, seconds. A handshake over a long distance takes one.
PATIENCE = 2.0


class Silence:
    """The silence of one destination, until its first response.

    :param where: its base URL, and the proxy on the way.
    :param limit: the longest time of an attempt, seconds.
    :ivar answered: True if it has responded.
    """

    __slots__ = ("_limit", "_listens", "_warned", "_where", "answered")

    def __init__(self, where: str, limit: float) -> None:
        self._where, self._limit = where, limit
        self.answered = self._listens = self._warned = False

    def listen(self, attempts: Attempts, attempt: Attempt, clock: Clock) -> None:
        """Log a warning if the attempt still runs after :data:`PATIENCE`; for one attempt at a time."""
        if self._listens or self._warned:
            return
        self._listens = True

        def is_needless() -> bool:
            self._listens = attempts.is_running(attempt)
            return not self._listens

        attempts.at(Deadline.after(clock, PATIENCE), is_needless, lambda: self._warn(connected=attempt.has_connection))

    def _warn(self, *, connected: bool) -> None:
        self._warned = True
        found = "connected, but no answer" if connected else "no connection"
        words = "%s: %s for %g s; the attempt may take %g s (http.attempt_timeout_ms)"
        with at_work():
            _log.warning(words, self._where, found, PATIENCE, self._limit)

    def end(self) -> None:
        """Note a response."""
        self.answered = True
        if self._warned:
            _log.info("%s: answers now", self._where)
