"""TLS within TLS: to a server, through a proxy that is itself connected by TLS."""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable
from time import monotonic
from typing import Any

from .raw_exchange import TimedSocket

_READ = 16 * 1024


class TlsWithinTls:
    """A socket within a TLS socket, which ``ssl.SSLSocket`` cannot be; it has the methods that a request needs.

    :param below: the connection to the proxy.
    """

    def __init__(self, below: ssl.SSLSocket, context: ssl.SSLContext, host: str) -> None:
        self._below, self._timeout = below, 0.0
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self.fileno, self.close = below.fileno, below.close

    def settimeout(self, seconds: float) -> None:
        """Set the time limit of each of the other methods."""
        self._timeout = seconds

    def do_handshake(self) -> None:
        """Do the TLS handshake."""
        self._run(self._tls.do_handshake)

    def send(self, data: Any) -> int:
        """Send all of the bytes."""
        return int(self._run(lambda: self._tls.write(data)))

    def recv(self, most: int) -> bytes:
        """Receive some bytes; none at the connection's end."""
        try:
            return bytes(self._run(lambda: self._tls.read(most)))
        except ssl.SSLEOFError:
            return b""

    def pending(self) -> int:
        """Return the number of received bytes that were not read."""
        return self._tls.pending() + self._incoming.pending + self._below.pending()

    def _run(self, step: Callable[[], Any]) -> Any:
        """Do a step of TLS, which sends and receives bytes through the connection below."""
        end = monotonic() + self._timeout
        below = TimedSocket(self._below, lambda: _left(end), math.inf)
        while True:
            try:
                is_done, result = True, step()
            except ssl.SSLWantReadError:
                is_done, result = False, None
            if self._outgoing.pending:
                below.sendall(self._outgoing.read())
            if is_done:
                return result
            data = below.recv(_READ)
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()


def _left(end: float) -> float:
    left = end - monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left
