"""A warning of a destination that has never answered, while its first attempts wait.

A failure is logged once an attempt has failed. A server, proxy or firewall that takes everything and says nothing fails
after its timeout, by default ten seconds for a connection and sixty for an answer, and a wrong port or host is often of
this kind. A destination that has answered before may take its time.
"""

from __future__ import annotations

from ...runtime.clock import Clock, Deadline
from ...runtime.internal_threads import at_work
from ...runtime.loggers import get_logger
from .attempts import Attempt, Attempts

_log = get_logger("loghub.http")

#: How long a destination may be silent at first, seconds. A handshake over a long way takes one.
PATIENCE = 2.0


class Silence:
    """The silence of one destination, until its first answer.

    :param where: its base URL, and the proxy on the way.
    :param limit: the most that an attempt may take, seconds.
    :ivar answered: True if it has answered.
    """

    __slots__ = ("_limit", "_listens", "_said", "_where", "answered")

    def __init__(self, where: str, limit: float) -> None:
        self._where, self._limit = where, limit
        self.answered = self._listens = self._said = False

    def listen(self, attempts: Attempts, attempt: Attempt, clock: Clock) -> None:
        """Log a warning if the attempt still runs after :data:`PATIENCE`; one attempt at a time is listened to."""
        if self._listens or self._said:
            return
        self._listens = True

        def is_needless() -> bool:
            self._listens = attempts.is_running(attempt)
            return not self._listens

        attempts.at(Deadline.after(clock, PATIENCE), is_needless, lambda: self._tell(connected=attempt.has_connection))

    def _tell(self, *, connected: bool) -> None:
        self._said = True
        found = "connected, but no answer" if connected else "no connection"
        words = "%s: %s for %g s; the attempt may take %g s (http.attempt_timeout_ms)"
        with at_work():
            _log.warning(words, self._where, found, PATIENCE, self._limit)

    def end(self) -> None:
        """Note that it has answered."""
        self.answered = True
        if self._said:
            _log.info("%s: answers now", self._where)
