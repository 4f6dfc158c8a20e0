"""Connections that wait for a request, and the one request that each of them serves at a time.

A request is written as it was prepared: its head and a small body in one call of the socket. Whether a batch may be
stored follows from the bytes that left, and from nothing else. An exception's class does not tell: TLS may fail after
the request as well as before it. Here the bytes are handed to the socket, so here it is known.
"""

from __future__ import annotations

import re
from typing import Any

from .answers import FIRST, Received, receive
from .attempts import Attempt, Sent
from .raw_exchange import TimedSocket, exchange_at_once, looks_quiet

# A request line would be another one.
_NOT_IN_TARGETS = re.compile("[\x00-\x20\x7f]")


class Idle:
    """The sockets of one way that wait for a request; the last used is the first to be used again. Each step is one
    operation of a list.

    :param most: sockets that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._sockets: list[Any] = []
        self.is_closed = False

    def get(self) -> Any:
        """Take a socket over which nothing has come since its last answer, not even its end; None without one."""
        while True:
            try:
                sock = self._sockets.pop()
            except IndexError:
                return None
            # TLS may have taken bytes from the kernel that it no longer knows of.
            if looks_quiet(sock.fileno()) and not (hasattr(sock, "pending") and sock.pending()):
                return sock
            sock.close()

    def put(self, sock: Any) -> None:
        """Keep a socket, or close it: there are enough."""
        if len(self._sockets) >= self._most:
            sock.close()
            return
        self._sockets.append(sock)
        if self.is_closed:
            self.close()

    def close(self) -> None:
        """Close the sockets, and those that come."""
        self.is_closed = True
        while self._sockets:
            try:
                self._sockets.pop().close()
            except IndexError:  # another thread took it
                return


def begin_of(method: str, target: str, head: bytes) -> bytes:
    """Return the bytes of a request before its body.

    :param method: ``POST`` or ``GET``.
    :param target: what is asked for, percent-encoded.
    :param head: the headers, a line each, without the last line's end.
    :raises ValueError: a target that no request line can have.
    """
    if _NOT_IN_TARGETS.search(target):
        raise ValueError(f"nothing that can be asked for: {target!r}")
    return b"%b %b HTTP/1.1\r\n%b\r\n\r\n" % (method.encode("ascii"), target.encode("ascii"), head)


def exchange(sock: Any, attempt: Attempt, silence: float, begin: bytes, body: bytes, most: int) -> Received:
    """Send a request over a socket, and read its answer.

    :param silence: how long the other end may be silent, seconds.
    :param begin: of :func:`begin_of`.
    :param most: bytes of the answer's body that are read.
    :raises OSError: the connection failed, or time is over.
    :raises http.client.HTTPException: the answer makes no sense.
    """
    line = TimedSocket(sock, attempt.left, silence)
    attempt.left()  # raises before anything leaves
    attempt.sent = Sent.WHOLE  # an interrupt may come before it is known
    whole, error, first = exchange_at_once(line, begin, body, FIRST)
    attempt.sent = Sent.WHOLE if whole else Sent.PART
    if error is not None:
        raise error
    received = receive(line, first, most)
    # A server may answer before it has read all: the rest of the request would be taken for the next one.
    return received if whole else received._replace(last=True)
