"""Kept connections, and the exchange of one request and its response.

A request is written as it was prepared: its head and a small body in one call of the socket. The bytes that were sent
alone decide whether a batch may be stored. An exception's class cannot tell: TLS may fail after the request as well as
before it. This module passes the bytes to the socket, so it knows.
"""

from __future__ import annotations

import re
import weakref
from typing import Any

from .answers import FIRST, Received, receive
from .attempts import Attempt, Sent
from .raw_exchange import TimedSocket, exchange_at_once, looks_quiet

# Characters that would end the request line or begin another one.
_NOT_IN_TARGETS = re.compile("[\x00-\x20\x7f]")


class Idle:
    """The idle sockets of one way; the last used is the first to be used again. Each step is one operation of a list.

    :param most: the maximum number of sockets that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._sockets: list[Any] = []
        self.is_closed = False
        # This closes the sockets of clients that the user does not close. A ``__del__`` could run after those of its
        # sockets, which warn.
        weakref.finalize(self, _close_all, self._sockets).atexit = False

    def get(self) -> Any:
        """Take a socket that received nothing since its last response, not even its end; None without one."""
        while True:
            try:
                sock = self._sockets.pop()
            except IndexError:
                return None
            # TLS may have read bytes from the kernel that the kernel no longer knows of.
            if looks_quiet(sock.fileno()) and not (hasattr(sock, "pending") and sock.pending()):
                return sock
            sock.close()

    def put(self, sock: Any) -> None:
        """Keep a socket, or close it if there are enough."""
        if len(self._sockets) >= self._most:
            sock.close()
            return
        self._sockets.append(sock)
        if self.is_closed:
            self.close()

    def close(self) -> None:
        """Close the kept and all later sockets."""
        self.is_closed = True
        _close_all(self._sockets)


def _close_all(sockets: list[Any]) -> None:
    while sockets:
        try:
            sockets.pop().close()
        except IndexError:  # another thread took it
            return


def begin_of(method: str, target: str, head: bytes) -> bytes:
    """Return the bytes of a request before its body.

    :param method: ``POST`` or ``GET``.
    :param target: the target, percent-encoded.
    :param head: the headers, a line each, without the last end of line.
    :raises ValueError: a target that a request line cannot have.
    """
    if _NOT_IN_TARGETS.search(target):
        raise ValueError(f"nothing that can be asked for: {target!r}")
    return b"%b %b HTTP/1.1\r\n%b\r\n\r\n" % (method.encode("ascii"), target.encode("ascii"), head)


def exchange(sock: Any, attempt: Attempt, silence: float, begin: bytes, body: bytes, most: int) -> Received:
    """Send a request over a socket, and read its response.

    :param silence: how long the other side may be silent, seconds.
    :param begin: the result of :func:`begin_of`.
    :param most: the maximum bytes of the response's body to read.
    :raises OSError: the connection failed, or the time is over.
    :raises http.client.HTTPException: an invalid response.
    """
    line = TimedSocket(sock, attempt.left, silence)
    attempt.left()  # raises before anything is sent
    attempt.sent = Sent.WHOLE  # assumed first: an interrupt may come before it is known
    whole, error, first = exchange_at_once(line, begin, body, FIRST)
    attempt.sent = Sent.WHOLE if whole else Sent.PART
    if error is not None:
        raise error
    received = receive(line, first, most)
    # A server may respond before it has read everything: the rest of the request would be taken for the next one.
    return received if whole else received._replace(last=True)
