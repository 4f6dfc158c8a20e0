"""Silence: that a destination which has never answered does not is said before the attempt ends.

What fails is told once it has failed. A server, proxy or firewall that takes everything and says nothing fails after
its timeout, by default ten seconds for a connection and sixty for an answer, and a wrong port or host is often of this
kind. One that has answered before may take its time: it is told of when its attempt has failed.
"""

from __future__ import annotations

from ...loggers import get_logger

_log = get_logger("producer.http")

#: How long a destination may be silent at first, seconds. A handshake over a long way takes one.
PATIENCE = 2.0


class Silence:
    """Of one way to a destination; its methods may be called from any thread.

    :param where: its base URL, and the proxy on the way.
    :param connect_timeout: seconds, as ``read_timeout``.
    :ivar broken: whether it has ever answered.
    """

    __slots__ = ("_limits", "_said", "_where", "broken")

    def __init__(self, where: str, connect_timeout: float, read_timeout: float) -> None:
        self._where = where
        self._limits = connect_timeout, read_timeout
        self.broken = self._said = False

    def tell(self, *, connected: bool) -> None:
        """An attempt has lasted for :data:`PATIENCE`; of several one is told of.

        :param connected: whether it has a connection.
        """
        if self._said or self.broken:
            return
        self._said = True
        found = "connected, but no answer" if connected else "no connection"
        option = "http.read_timeout_ms" if connected else "http.connect_timeout_ms"
        words = "%s: %s for %g s; the attempt waits for up to %g s (%s)"
        _log.warning(words, self._where, found, PATIENCE, self._limits[connected], option)

    def end(self) -> None:
        """It has answered."""
        self.broken = True
        if self._said:
            _log.info("%s: answers now", self._where)
