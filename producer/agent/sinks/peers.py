"""PeerSink: the base of sinks with one connection to a receiver, over TCP with TLS or without.

Every wait has a deadline.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...model.errors import ConfigError
from ...model.options import option
from ...runtime.clock import NO_DEADLINE, Clock, Deadline
from ...runtime.tls import closed_if_it_fails
from ...sinks.http.raw_exchange import looks_quiet
from ..events.batch import EventBatch
from ..events.interfaces import Context, SinkError
from ..protocols.tls_files import RenewedTls, load_own, validity_errors

_READ = 1 << 16
#: Seconds between two checks of the deadline, which may become earlier while waiting.
_CHECK_SECONDS = 0.2


#: Maximum bytes of an event that receivers accept: Flume's frames, and ``max_frame`` of this agent's sources.
FRAME = 16 << 20


class OversizedError(ValueError):
    """Raised if the connection failed while sending an event that exceeds the receivers' usual limit."""

    def __init__(self, name: str, size: int, error: Exception) -> None:
        super().__init__(f"{name}: {error}; an event has {size} bytes, and receivers usually accept {FRAME} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOptions:
    """Options of all sinks that connect over TCP."""

    tls: bool = option(False, doc="use TLS")
    verify: bool = option(True, doc="check the receiver's certificate")
    authorities: Path | None = option(None, doc="PEM file of trusted authorities; empty for the system's")
    certificate: Path | None = option(None, doc="PEM file with a client certificate")
    key: Path | None = option(None, doc="PEM file with its key, if it is not in the same file")

    def __post_init__(self) -> None:
        if not self.tls and (self.authorities or self.certificate or not self.verify):
            raise ConfigError("tls", "is needed with authorities, certificate or verify", self.tls)
        if self.key is not None and self.certificate is None:
            raise ConfigError("key", "needs certificate, which is missing", str(self.key))

    def missing(self) -> Iterator[ConfigError]:
        """Yield an error for each file that cannot be used."""
        try:
            self.context()
        except ConfigError as error:
            yield error
        yield from validity_errors(self.certificate, self.key)

    def context(self) -> ssl.SSLContext | None:
        """Return the client's TLS context; None without TLS.

        :raises ConfigError: the files cannot be used.
        """
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.authorities)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError("authorities", f"cannot be used: {error}", str(self.authorities)) from error
        if self.certificate is not None:
            load_own(context, self.certificate, self.key)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


class Peer:
    """Connection to one receiver.

    :param timeout: seconds to connect.
    :raises OSError: the connection failed.
    """

    def __init__(self, address: tuple[str, int], timeout: float, tls: ssl.SSLContext | None, clock: Clock) -> None:
        self._clock, self._end = clock, NO_DEADLINE
        self._socket = socket.create_connection(address, timeout)
        if tls is not None:
            with closed_if_it_fails():
                name = address[0]
                self._socket = tls.wrap_socket(self._socket, server_hostname=name, do_handshake_on_connect=False)

    def shake(self, deadline: Deadline) -> None:
        """Do the TLS handshake; without TLS, nothing. It must be the first call.

        :raises OSError: the certificate is not trusted, or the time is over.
        """
        while isinstance(self._socket, ssl.SSLSocket):
            self._limit(deadline)
            with suppress(TimeoutError):
                self._socket.do_handshake()
                return

    def is_gone(self) -> bool:
        """Return True if the receiver has closed the connection, or sent bytes that were not expected."""
        return not looks_quiet(self._socket.fileno())

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Send all bytes.

        :raises OSError: the connection failed, or the time is over.
        """
        left = memoryview(data)
        while left:
            self._limit(deadline)
            with suppress(TimeoutError):
                left = left[self._socket.send(left) :]

    def receive(self, deadline: Deadline, most: int = _READ) -> bytes:
        """Return the next bytes; at least one.

        :raises OSError: the connection failed, or the time is over.
        """
        while True:
            self._limit(deadline)
            with suppress(TimeoutError):
                data = self._socket.recv(most)
                if not data:
                    raise ConnectionError("the receiver closed the connection before it acknowledged")
                return data

    def hurry(self, end: Deadline) -> None:
        """Limit the waits of the connection to an earlier deadline; called by another thread."""
        self._end = end

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _limit(self, deadline: Deadline) -> None:
        if deadline.expired(self._clock) or self._end.expired(self._clock):
            raise ConnectionError("not acknowledged in time (timeout)")
        self._socket.settimeout(_CHECK_SECONDS)


class PeerSink:
    """Base of sinks that keep one connection to a receiver between deliveries.

    :param address: host and port of the receiver.
    :param timeout: seconds to connect.
    :param reset: seconds after which to reconnect; 0 for never.
    """

    def __init__(
        self, options: PeerOptions, context: Context, address: tuple[str, int], timeout: float, reset: float = 0
    ) -> None:
        self._address, self._name = address, f"{address[0]}:{address[1]}"
        self._connect_timeout, self._reset = timeout, reset
        self._clock, self._counters = context.clock, context.counters
        files = (options.certificate, options.key), options.authorities
        self._tls = RenewedTls(options.context, *files, f"sink {context.name}", context)
        self._peer: Peer | None = None
        self._line: Any = None
        self._end = NO_DEADLINE
        self._since = 0.0

    def give_up(self, deadline: Deadline) -> None:
        self._end, peer = deadline, self._peer
        if peer is not None:
            peer.hurry(deadline)

    def close(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()
            self._counters.add(ConnectionClosedCount=1)

    def _connected(self) -> Any:
        """Return the result of :meth:`_line_to` for the receiver; connect if necessary."""
        now = self._clock.monotonic()
        old = 0 < self._reset <= now - self._since
        if self._peer is not None and (old or self._peer.is_gone()):
            self.close()
        if self._peer is None:
            self._peer = Peer(self._address, self._connect_timeout, self._tls.context(), self._clock)
            self._peer.hurry(self._end)
            deadline = Deadline.after(self._clock, self._connect_timeout)
            self._peer.shake(deadline)
            self._line = self._line_to(self._peer, deadline)
            self._since = now
            self._counters.add(ConnectionCreatedCount=1)
        return self._line

    def _line_to(self, peer: Peer, deadline: Deadline) -> Any:
        """Greet a new peer, and return the object for deliveries. A hook for subclasses.

        :raises OSError: the connection failed, or the answer is late.
        :raises ValueError: the answer is invalid.
        """
        return peer

    def _failed(self, error: Exception, size: int, later: Sequence[EventBatch] | None = None) -> Exception:
        """Close the connection after a failure, and return the error to raise.

        :param size: bytes of the largest message that may have failed.
        """
        self._counters.add(ConnectionFailedCount=1)
        self.close()
        if size > FRAME:
            return OversizedError(self._name, size, error)
        return SinkError(f"{self._name}: {error}", later)
