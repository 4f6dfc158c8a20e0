"""TLS: close the sockets that failed connections leave open.

Before Python 3.13, ``SSLContext.wrap_socket`` takes a socket over, finds that the peer has reset it, and raises without
closing it. ``socket.create_connection`` does the same when interrupted. Then only frames of the traceback refer to the
socket, which stays open until these are collected.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def closed_if_it_fails() -> Iterator[None]:
    """Close the sockets that functions called by the block were opening, if it raises."""
    try:
        yield
    except BaseException as error:
        # Skip this frame and the block's own, which owns its sockets.
        trace = error.__traceback__ and error.__traceback__.tb_next and error.__traceback__.tb_next.tb_next
        while trace is not None:
            for name in ("self", "sock"):
                left = trace.tb_frame.f_locals.get(name)
                if isinstance(left, socket.socket) and (descriptor := left.detach()) >= 0:
                    socket.close(descriptor)  # not sock.close(): an interrupt may come before __init__ is done
            trace = trace.tb_next
        raise
