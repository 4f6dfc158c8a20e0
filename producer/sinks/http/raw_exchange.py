"""The socket calls of one request, in as few steps as possible: at each system call, another thread may take the
interpreter lock.

In the native implementation, a request and the first bytes of its response are one such step.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any

from ...runtime.compiled import either

#: A body up to this size is appended to its head, to be sent in one call, bytes.
_SENT_WITH_HEAD = 16 * 1024


class TimedSocket:
    """A socket whose calls share the time of an attempt.

    :param sock: the socket, which the caller owns.
    :param left: returns the remaining time of the attempt, seconds, or raises a TimeoutError.
    :param silence: how long the other side may be silent, seconds.
    """

    __slots__ = ("left", "silence", "sock")

    def __init__(self, sock: Any, left: Callable[[], float], silence: float) -> None:
        self.sock, self.left, self.silence = sock, left, silence

    def recv(self, most: int) -> bytes:
        """Receive some bytes; none at the connection's end."""
        self._set_timeout()
        data: bytes = self.sock.recv(most)
        return data

    def send(self, data: Any) -> int:
        """Send some bytes."""
        self._set_timeout()
        return int(self.sock.send(data))

    def sendall(self, data: bytes) -> None:
        """Send all bytes. The limit of silence applies to each part that the system accepts."""
        rest = memoryview(data)
        while rest:
            rest = rest[self.send(rest) :]

    def _set_timeout(self) -> None:
        self.sock.settimeout(min(self.silence, self.left()))


def exchange(line: TimedSocket, head: bytes, body: bytes, most: int) -> tuple[bool, OSError | None, bytes]:
    """Write a request, and read the first bytes of its response.

    A server may respond and close before it has read everything: its response can then still be read.

    :param most: the maximum bytes of the response to read.
    :returns: whether all of the request was sent, the error, and the first bytes of the response. The bytes are empty
        after an error, or at the end of the connection.
    """
    whole = False
    try:
        for part in (head + body,) if len(body) <= _SENT_WITH_HEAD else (head, body):
            line.sendall(part)
        whole = True
    except (BrokenPipeError, ConnectionResetError):
        pass
    except OSError as error:
        return whole, error, b""
    try:
        return whole, None, line.recv(most)
    except OSError as error:
        return whole, error, b""


def is_quiet(descriptor: int) -> bool:
    """Return True if nothing can be read from a socket, not even its end."""
    if not hasattr(select, "poll"):
        return not select.select([descriptor], [], [], 0)[0]
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return not poll.poll(0)


_COMPILED = f"{__package__}._raw_exchange"
exchange_at_once = either(_COMPILED, "exchange", exchange)
looks_quiet = either(_COMPILED, "is_quiet", is_quiet)
