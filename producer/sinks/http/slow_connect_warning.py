"""Silence: that a destination which has never answered does not is said before the attempt ends.

What fails is told once it has failed. A server, proxy or firewall that takes everything and says nothing fails after
its timeout, by default ten seconds for a connection and sixty for an answer, and a wrong port or host is often of this
kind. One that has answered before may take its time: it is told of when its attempt has failed.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from ...runtime.internal_threads import at_work
from ...runtime.loggers import get_logger

_log = get_logger("producer.http")

#: How long a destination may be silent at first, seconds. A handshake over a long way takes one.
PATIENCE = 2.0


class Silence:
    """Of one way to a destination; its methods may be called from any thread.

    :param where: its base URL, and the proxy on the way.
    :param limit: the most that an attempt may take, seconds.
    :ivar answered: whether it ever has.
    """

    __slots__ = ("_limit", "_said", "_where", "answered")

    def __init__(self, where: str, limit: float) -> None:
        self._where, self._limit = where, limit
        self.answered = self._said = False

    def tell(self, *, connected: bool) -> None:
        """An attempt has lasted for :data:`PATIENCE`; of several one is told of.

        :param connected: whether it has a connection.
        """
        if self._said or self.answered:
            return
        self._said = True
        # While a handler of the application's takes its time, the watchdog could end no attempt.
        teller = threading.Thread(target=self._tell, args=(connected,), name="producer-silence", daemon=True)
        with suppress(RuntimeError):  # the interpreter is exiting, or there are too many: the attempt's failure is told
            teller.start()

    def _tell(self, connected: bool) -> None:
        found = "connected, but no answer" if connected else "no connection"
        words = "%s: %s for %g s; the attempt may take %g s (http.attempt_timeout_ms)"
        with at_work():
            _log.warning(words, self._where, found, PATIENCE, self._limit)

    def end(self) -> None:
        """It has answered."""
        self.answered = True
        if self._said:
            _log.info("%s: answers now", self._where)
