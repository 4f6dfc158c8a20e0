"""What is asked of a socket for one small request, in as few steps as can be: at each step of the kernel another thread
may take the interpreter. Compiled, a request and its answer are one such step.
"""

from __future__ import annotations

import select
from typing import Any

from ...runtime.compiled import either

#: A body of no more bytes is copied behind its head, to be sent with it.
_SENT_WITH_HEAD = 16 * 1024


def exchange(sock: Any, head: bytes, body: bytes, most: int) -> tuple[bool, OSError | None, bytes]:
    """Write a request, and read the first of its answer.

    A server may answer and close before it has read all: then its answer is there to be read.

    :param sock: one that waits, for as long as it was told to.
    :param most: bytes of the answer.
    :returns: whether all of the request has left, what went wrong, and the first bytes of the answer; nothing where
        something went wrong, or at the connection's end.
    """
    whole = False
    try:
        for part in (head + body,) if len(body) <= _SENT_WITH_HEAD else (head, body):
            sock.sendall(part)  # not every kind of TLS has another way
        whole = True
    except (BrokenPipeError, ConnectionResetError):
        pass
    except OSError as error:
        return whole, error, b""
    try:
        return whole, None, sock.recv(most) or b""  # TLS within TLS says 0 at its end
    except OSError as error:
        return whole, error, b""


def is_quiet(descriptor: int) -> bool:
    """Whether there is nothing to be read from a socket, not even its end."""
    if not hasattr(select, "poll"):
        return not select.select([descriptor], [], [], 0)[0]
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return not poll.poll(0)


_COMPILED = f"{__package__}._raw_exchange"
exchange_at_once = either(_COMPILED, "exchange", exchange)
looks_quiet = either(_COMPILED, "is_quiet", is_quiet)
