"""What failed openings of connections leave open.

Before Python 3.13, ``SSLContext.wrap_socket`` takes a socket over, finds that the peer has reset it, and raises without
closing it; so does ``socket.create_connection`` when an interrupt comes while it connects. Then only the frames of the
traceback have the socket, and it stays open until these are collected.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def closed_if_it_fails() -> Iterator[None]:
    """Close the sockets that functions which the block has called were opening, if it fails."""
    try:
        yield
    except BaseException as error:
        # The first frame is this one's, the second the block's own: what it holds is its business.
        trace = error.__traceback__ and error.__traceback__.tb_next and error.__traceback__.tb_next.tb_next
        while trace is not None:
            for name in ("self", "sock"):
                left = trace.tb_frame.f_locals.get(name)
                if isinstance(left, socket.socket) and (descriptor := left.detach()) >= 0:
                    socket.close(descriptor)  # not its own `close`: an interrupt may come before it is whole
            trace = trace.tb_next
        raise
