"""What the ssl module of older Pythons leaves open.

Before Python 3.13, ``SSLContext.wrap_socket`` takes a socket over, finds that the peer has reset it, and raises without
closing it. Nobody has it then but the frames of the traceback, and it stays open until these are collected.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def closed_if_it_fails() -> Iterator[None]:
    """Close the socket of a TLS handshake within the block that fails."""
    try:
        yield
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None:
            left = trace.tb_frame.f_locals.get("self")
            if isinstance(left, ssl.SSLSocket):
                left.close()
            trace = trace.tb_next
        raise
