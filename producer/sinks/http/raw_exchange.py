"""The calls of a socket for one request, in as few steps as can be: at each step of the kernel another thread may take
the interpreter. Compiled, a request and the first bytes of its answer are one such step.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any

from ...runtime.compiled import either

#: A body of no more bytes is copied behind its head, to be sent with it.
_SENT_WITH_HEAD = 16 * 1024


class TimedSocket:
    """A socket each of whose calls has its share of an attempt's time.

    :param sock: the socket; it stays the caller's.
    :param left: returns how long the attempt may still take, seconds, or raises a TimeoutError.
    :param silence: how long the other end may be silent, seconds.
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
        """Send all bytes, for as long as some leave."""
        rest = memoryview(data)
        while rest:
            rest = rest[self.send(rest) :]

    def _set_timeout(self) -> None:
        self.sock.settimeout(min(self.silence, self.left()))


def exchange(line: TimedSocket, head: bytes, body: bytes, most: int) -> tuple[bool, OSError | None, bytes]:
    """Write a request, and read the first of its answer.

    A server may answer and close before it has read all: then its answer is there to be read.

    :param most: bytes of the answer.
    :returns: whether all of the request has left, the error, and the first bytes of the answer; nothing where
        something went wrong, or at the connection's end.
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
    """Return True if there is nothing to be read from a socket, not even its end."""
    if not hasattr(select, "poll"):
        return not select.select([descriptor], [], [], 0)[0]
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return not poll.poll(0)


_COMPILED = f"{__package__}._raw_exchange"
exchange_at_once = either(_COMPILED, "exchange", exchange)
looks_quiet = either(_COMPILED, "is_quiet", is_quiet)
