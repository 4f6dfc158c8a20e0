"""Connections of urllib3 that know what of a request has left, and tell the watchdog of their sockets: direct ones,
TLS, and those to proxies.

A request is written here as it was prepared: its head and a small body in one call of the socket. What urllib3 and
``http.client`` do besides to each header of each request costs as much as all the rest of a small one. So do threads
that take the interpreter from each other at each call of the kernel: there are as few as can be.

Whether a batch may be stored follows from the bytes that left, and from nothing else. An exception's class does not
tell: TLS may fail after the request as well as before it, and behind a proxy every connection that ends looks like a
proxy that was never reached. Here the bytes are handed to the socket, so here it is known.

A socket is known to the watchdog from the moment that it exists, before a proxy is spoken to and before TLS begins; one
from the pool, from the beginning of the request.
"""

from __future__ import annotations

import _socket
import enum
import http.client
import queue
import re
import socket
import struct
import sys
from contextvars import ContextVar
from functools import cache
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import requests.adapters
from urllib3 import HTTPConnectionPool, PoolManager
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NameResolutionError, NewConnectionError

from ...runtime.tls import closed_if_it_fails
from ...text.addresses import is_address
from .answers import FIRST, MOST_OF_AN_ANSWER, Received, Response, receive
from .dns import addresses_of
from .raw_exchange import exchange_at_once, looks_quiet
from .watchdog import guard, lend, take_back, time_left

# How a kernel is told for how long to wait on a socket; None where that may be another way.
_TIMEVAL = struct.Struct("@ll") if sys.platform == "linux" and sys.maxsize > 2**32 else None

# What http.client sends in no request line.
_NOT_IN_TARGETS = re.compile("[\x00-\x20\x7f]")

# What an address of several gets at least, seconds.
_LEAST_TO_CONNECT = 0.1

# The request that this thread, or greenlet, makes at the moment.
_here: ContextVar[Outgoing | None] = ContextVar("request", default=None)


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
    :ivar connection: the connection of urllib3 that sends it, if urllib3 does.
    """

    __slots__ = ("connection", "sent")

    def __init__(self) -> None:
        self.sent = Sent.NOTHING
        self.connection: Followed | None = None

    def __enter__(self) -> Self:
        _here.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _here.set(None)
        # An interrupt may come where nobody holds the connection but an answer that is lost.
        if self.connection is not None and kind is not None and not issubclass(kind, Exception):
            self.connection.close()


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


# Comes before one of urllib3's classes, so that ``super()`` is that one.
if TYPE_CHECKING:
    _Connection = HTTPConnection
else:
    _Connection = object


class Followed(_Connection):
    """What a connection does besides; comes before one of urllib3's classes."""

    sock: Any
    timeout: Any
    port: Any
    _dns_host: Any
    socket_options: Any
    source_address: Any
    response_class = Response
    # How long a socket waits, seconds, of the one that was told last.
    _patience: tuple[Any, float] = None, 0.0

    @property
    def is_connected(self) -> bool:
        """Whether nothing has come since the last answer, not even the end of the connection."""
        self._go_out()  # it was taken from its pool for that, and the pool no longer knows of it
        return self.sock is not None and looks_quiet(self.sock.fileno()) and not _holds_more(self.sock)

    def close(self) -> None:
        """See :class:`urllib3.connection.HTTPConnection`."""
        self._patience = None, 0.0
        take_back()
        super().close()

    def connect(self) -> None:
        """See :class:`urllib3.connection.HTTPConnection`."""
        with closed_if_it_fails():
            super().connect()

    def request(self, *args: Any, **options: Any) -> None:
        """See :class:`urllib3.connection.HTTPConnection`."""
        self._go_out()
        super().request(*args, **options)

    def _go_out(self) -> None:
        """This thread's request is sent by this connection."""
        outgoing = _here.get()
        if outgoing is not None:
            outgoing.connection = self

    def _new_conn(self) -> Any:
        direct = super()._new_conn.__func__ is HTTPConnection._new_conn  # type: ignore[attr-defined]  # SOCKS has its own
        if direct and self.timeout is not None:
            return self._connected()
        sock = super()._new_conn()
        try:
            guard(sock.fileno())
        except BaseException:
            sock.close()
            raise
        return sock

    def _connected(self) -> Any:
        """A socket to the first address that answers. All share the time, which urllib3 would give to each of them."""
        end = monotonic() + self.timeout
        host = self._dns_host.strip("[]")
        addresses = [host] if is_address(host) else self._resolved(host, end)
        if not addresses:
            return super()._new_conn()  # it says what is wrong with the name
        while True:
            address = addresses.pop(0)
            limit = max(_LEAST_TO_CONNECT, (end - monotonic()) / (1 + len(addresses)))
            try:
                return self._connected_to(address, limit)
            except TimeoutError as error:
                failure: HTTPError = ConnectTimeoutError(self, f"Connection to {address} timed out ({limit:.1f} s)")
                cause: OSError = error
            except OSError as error:
                failure = NewConnectionError(self, f"Failed to establish a new connection: {error}")
                cause = error
            if not addresses or monotonic() >= end or time_left() <= 0:
                raise failure from cause

    def _connected_to(self, address: str, timeout: float) -> socket.socket:
        """Connect to an address under the watchdog, which ends the wait for it too.

        :raises OSError: it cannot be connected to, or not in time.
        """
        family, kind, protocol, _, place = socket.getaddrinfo(address, self.port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
        try:
            guard(sock.fileno())
            for option in self.socket_options or ():
                sock.setsockopt(*option)
            sock.settimeout(timeout)
            if self.source_address:
                sock.bind(self.source_address)
            sock.connect(place)
        except BaseException:
            take_back()
            sock.close()
            raise
        sock.settimeout(self.timeout)
        return sock

    def _resolved(self, host: str, end: float) -> list[str]:
        """The addresses of a host; none if it is no name, which others tell."""
        try:
            return addresses_of(host, self.port, lambda: min(end - monotonic(), time_left()))
        except TimeoutError as error:
            raise ConnectTimeoutError(self, str(error)) from error
        except socket.gaierror as error:
            raise NameResolutionError(host, self, error) from error
        except OSError as error:
            raise NewConnectionError(self, str(error)) from error
        except UnicodeError:
            return []

    def exchange(
        self, method: str, target: str, head: bytes, body: bytes, timeout: float, most: int = MOST_OF_AN_ANSWER
    ) -> Received:
        """Send a request over the connection, which is open, and read its answer.

        :param method: ``POST`` or ``GET``.
        :param target: what is asked for, as the request line has it.
        :param head: the headers, a line each, without the last line's end.
        :param timeout: how long the other end may be silent, seconds.
        :param most: bytes of the answer's body that are read.
        """
        if _NOT_IN_TARGETS.search(target):
            raise http.client.InvalidURL(f"nothing that can be asked for: {target!r}")
        lend(self.sock.fileno())  # see `close`
        begin = b"%b %b HTTP/1.1\r\n%b\r\n\r\n" % (method.encode("ascii"), target.encode("ascii"), head)
        self._wait_at_most(timeout)
        try:
            whole, first = self._begin_exchange(begin, body)
            received = receive(self.sock, first, method, most)
        except BlockingIOError:  # so a kernel says that the time is over
            raise TimeoutError("timed out") from None
        return received if whole else received._replace(last=True)

    def _begin_exchange(self, begin: bytes, body: bytes) -> tuple[bool, bytes]:
        """Send the parts of a request, note what has left, and read the first bytes of the answer.

        :returns: whether all of it has left, and those bytes.
        """
        request = _here.get() or Outgoing()
        request.sent = Sent.WHOLE  # an interrupt may come before it is known
        whole, error, first = exchange_at_once(self.sock, begin, body, FIRST)
        request.sent = Sent.WHOLE if whole else Sent.PART
        if error is not None:
            raise error
        return whole, first

    def _wait_at_most(self, timeout: float) -> None:
        """Let no call of the socket wait longer. Of a plain one the kernel keeps the time: else Python asks it first
        whether each call would wait. (TLS has to know when its socket does.)
        """
        sock, self.timeout = self.sock, timeout
        if self._patience[0] is sock and self._patience[1] == timeout:
            return
        if _TIMEVAL is None or not _waits_in_kernel(sock):
            sock.settimeout(timeout)
        else:
            limit = _TIMEVAL.pack(int(timeout), max(1, int(timeout % 1 * 1_000_000)))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            sock.settimeout(None)
        self._patience = sock, timeout


def _waits_in_kernel(sock: Any) -> bool:
    """True if a call of the socket waits in the kernel: TLS asks its own layer, gevent and eventlet wait in a loop."""
    return type(sock) is socket.socket and isinstance(sock, _socket.socket)


def _holds_more(sock: Any) -> bool:
    """Whether TLS has taken bytes from the kernel that nobody has read: the kernel no longer knows of them."""
    if type(sock) is socket.socket:
        return False
    incoming = getattr(sock, "incoming", None)  # of TLS within TLS, which has its own, that of the way below, and these
    layers = [getattr(sock, name, None) for name in ("sslobj", "connection", "socket")]  # pyOpenSSL's: a connection
    held = [layer.pending() for layer in (sock, *layers) if hasattr(layer, "pending")]
    return any(held) or bool(incoming and incoming.pending)


class Idle:
    """The connections of a pool that wait for a request, the one that was used last first. As a queue of the standard
    library, where nobody waits for it: that one takes a lock, and a dozen calls, to let others wait.

    :param maxsize: so many, or about that.
    """

    def __init__(self, maxsize: int) -> None:
        self._maxsize = maxsize
        self._connections: list[Any] = []

    def get(self, block: bool = False, timeout: float | None = None) -> Any:
        """The last one.

        :raises queue.Empty: there is none.
        """
        try:
            return self._connections.pop()
        except IndexError:
            raise queue.Empty from None

    def put(self, connection: Any, block: bool = False, timeout: float | None = None) -> None:
        """Add one.

        :raises queue.Full: there are enough.
        """
        if len(self._connections) >= self._maxsize:
            raise queue.Full
        self._connections.append(connection)

    def qsize(self) -> int:
        """How many there are."""
        return len(self._connections)


@cache
def _followed(pool: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
    """The same kind of pool, with such connections."""
    if issubclass(pool.ConnectionCls, Followed):
        return pool
    connection = type(f"Followed{pool.ConnectionCls.__name__}", (Followed, pool.ConnectionCls), {})
    return type(f"Followed{pool.__name__}", (pool,), {"ConnectionCls": connection, "QueueCls": Idle})
