"""Connections of urllib3 that know what of a request has left, and tell the watchdog of their sockets: direct ones,
TLS, and those to proxies.

A request is written here as it was prepared: its head and a small body in one call of the socket. What urllib3 and
``http.client`` do besides to each header of each request costs as much as all the rest of a small one.

Whether a batch may be stored follows from the bytes that left, and from nothing else. An exception's class does not
tell: TLS may fail after the request as well as before it, and behind a proxy every connection that ends looks like a
proxy that was never reached. Here the bytes are handed to the socket, so here it is known.

A socket is known to the watchdog from the moment that it exists, before a proxy is spoken to and before TLS begins; one
from the pool, from the beginning of the request.
"""

from __future__ import annotations

import enum
import http.client
import re
import threading
from contextlib import suppress
from functools import cache
from types import TracebackType
from typing import Any, Self

import requests.adapters
from urllib3 import HTTPConnectionPool, PoolManager

from ...tls import closed_if_it_fails
from .answers import Received, Response, receive
from .watchdog import guard

#: A body of no more bytes is copied behind its head, to be sent with it.
_SENT_WITH_HEAD = 16 * 1024

# What http.client sends in no request line.
_NOT_IN_TARGETS = re.compile("[\x00-\x20\x7f]")

# The request that this thread makes at the moment.
_here = threading.local()


class Sent(enum.Enum):
    """How much of a request was handed to the socket."""

    #: Not a byte; what was said to a proxy to open the way does not count.
    NOTHING = "nothing"
    #: Not all of it: it announces its length, so whoever got a part cannot act upon it.
    PART = "part"
    #: All of it: unless an answer tells, it may have been carried out.
    WHOLE = "whole"


class Outgoing:
    """The request that this thread makes within the block, in the eyes of the connection that sends it.

    :ivar sent: how much of it has left.
    """

    __slots__ = ("sent",)

    def __init__(self) -> None:
        self.sent = Sent.NOTHING

    def __enter__(self) -> Self:
        _here.request = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _here.request = None


class FollowedAdapter(requests.adapters.HTTPAdapter):
    """An adapter all of whose connections follow what they send, and are under watch."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """See :class:`requests.adapters.HTTPAdapter`."""
        super().init_poolmanager(*args, **options)
        _follow(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        """See :class:`requests.adapters.HTTPAdapter`."""
        # Each time: another thread may have made it a moment ago.
        return _follow(super().proxy_manager_for(proxy, **options))


def _follow(manager: PoolManager) -> PoolManager:
    classes = manager.pool_classes_by_scheme
    manager.pool_classes_by_scheme = {scheme: _followed(pool) for scheme, pool in classes.items()}
    return manager


class Followed:
    """What a connection does besides; comes before one of urllib3's classes."""

    sock: Any
    timeout: Any
    response_class = Response

    def connect(self) -> None:
        """See :class:`urllib3.connection.HTTPConnection`."""
        with closed_if_it_fails():
            super().connect()  # type: ignore[misc]

    def _new_conn(self) -> Any:
        sock = super()._new_conn()  # type: ignore[misc]
        try:
            guard(sock.fileno())
        except BaseException:
            sock.close()
            raise
        return sock

    def exchange(self, method: str, target: str, head: bytes, body: bytes, timeout: float) -> Received:
        """Send a request over the connection, which is open, and read its answer.

        :param method: ``POST`` or ``GET``.
        :param target: what is asked for, as the request line has it.
        :param head: the headers, a line each, without the last line's end.
        :param timeout: how long the other end may be silent, seconds.
        """
        if _NOT_IN_TARGETS.search(target):
            raise http.client.InvalidURL(f"nothing that can be asked for: {target!r}")
        guard(self.sock.fileno())
        begin = b"%b %b HTTP/1.1\r\n%b\r\n\r\n" % (method.encode("ascii"), target.encode("ascii"), head)
        self.timeout = timeout
        self.sock.settimeout(timeout)
        # A server may answer and close before it has read all; its answer is there to be read.
        broken = True
        with suppress(BrokenPipeError, ConnectionResetError):
            self._send_all(begin, body)
            broken = False
        received = receive(self.sock, method)
        return received._replace(last=True) if broken else received

    def _send_all(self, begin: bytes, body: bytes) -> None:
        """Send the parts of a request, and note what has left."""
        request: Outgoing = getattr(_here, "request", None) or Outgoing()
        send = http.client.HTTPConnection.send
        request.sent = Sent.PART
        if len(body) > _SENT_WITH_HEAD:
            send(self, begin)  # type: ignore[arg-type]
            send(self, body)  # type: ignore[arg-type]
        else:
            send(self, begin + body)  # type: ignore[arg-type]
        request.sent = Sent.WHOLE


@cache
def _followed(pool: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
    """The same kind of pool, with such connections."""
    if issubclass(pool.ConnectionCls, Followed):
        return pool
    connection = type(f"Followed{pool.ConnectionCls.__name__}", (Followed, pool.ConnectionCls), {})
    return type(f"Followed{pool.__name__}", (pool,), {"ConnectionCls": connection})
