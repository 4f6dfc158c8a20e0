"""A connection to whoever takes events over TCP, with TLS or without; each wait on it has an end."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...model.errors import ConfigError
from ...model.options import option
from ...runtime.clock import NO_DEADLINE, Clock, Deadline
from ...runtime.tls import closed_if_it_fails
from ...sinks.http.raw_exchange import looks_quiet
from ..events.interfaces import Context
from ..protocols.tls_files import RenewedTls, load_own, out_of_time

_READ = 1 << 16
#: Seconds: who waits for a receiver looks so often whether there is less time than there was.
_LOOK = 0.2


#: Bytes that receivers take at once: frames of Flume, and of sources of this agent (``max_frame``).
FRAME = 16 << 20


class OversizedError(ValueError):
    """A receiver broke the connection while it was sent an event of more bytes than receivers take: it may be why."""

    def __init__(self, name: str, size: int, error: Exception) -> None:
        super().__init__(f"{name}: {error}; an event of {size} bytes is more than receivers take ({FRAME} bytes)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOptions:
    """Of every sink that connects."""

    tls: bool = option(False, doc="use TLS")
    verify: bool = option(True, doc="check the receiver's certificate")
    authorities: Path | None = option(None, doc="a PEM file of authorities; empty for the system's")
    certificate: Path | None = option(None, doc="a PEM file: who we are, for a receiver that asks")
    key: Path | None = option(None, doc="its key, if that is not in the same file")

    def __post_init__(self) -> None:
        if not self.tls and (self.authorities or self.certificate or not self.verify):
            raise ConfigError("tls", "is needed with authorities, certificate or verify", self.tls)
        if self.key is not None and self.certificate is None:
            raise ConfigError("key", "is that of a certificate", str(self.key))

    def missing(self) -> Iterator[ConfigError]:
        """Files that cannot be used."""
        try:
            self.context()
        except ConfigError as error:
            yield error
        yield from out_of_time(self.certificate, self.key)

    def context(self) -> ssl.SSLContext | None:
        """For the client's side; None without TLS.

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

    def renewed_tls(self, who: str, context: Context) -> RenewedTls:
        """As :meth:`context`, for long.

        :raises ConfigError: likewise.
        """
        return RenewedTls(self.context, (self.certificate, self.key), self.authorities, who, context)


class Peer:
    """See the module.

    :param timeout: seconds to connect.
    :raises OSError: there is nobody.
    """

    def __init__(self, address: tuple[str, int], timeout: float, tls: ssl.SSLContext | None, clock: Clock) -> None:
        self._clock, self._end = clock, NO_DEADLINE
        self._socket = socket.create_connection(address, timeout)
        if tls is not None:
            with closed_if_it_fails():
                name = address[0]
                self._socket = tls.wrap_socket(self._socket, server_hostname=name, do_handshake_on_connect=False)

    def shake(self, deadline: Deadline) -> None:
        """Make sure who it is; the first call, without TLS nothing.

        :raises OSError: it cannot be trusted, or it was not in time.
        """
        while isinstance(self._socket, ssl.SSLSocket):
            self._limit(deadline)
            with suppress(TimeoutError):
                self._socket.do_handshake()
                return

    def is_gone(self) -> bool:
        """Whether it has closed, or says something that nobody asked for."""
        return not looks_quiet(self._socket.fileno())

    def send(self, data: bytes, deadline: Deadline) -> None:
        """All of it.

        :raises OSError: the connection broke, or it was not in time.
        """
        left = memoryview(data)
        while left:
            self._limit(deadline)
            with suppress(TimeoutError):
                left = left[self._socket.send(left) :]

    def receive(self, deadline: Deadline, most: int = _READ) -> bytes:
        """What it says; something at least.

        :raises OSError: the connection broke, or it was not in time.
        """
        while True:
            self._limit(deadline)
            with suppress(TimeoutError):
                data = self._socket.recv(most)
                if not data:
                    raise ConnectionError("it closed the connection before it had acknowledged")
                return data

    def hurry(self, end: Deadline) -> None:
        """Whatever waits, does so until then at most; called by another thread."""
        self._end = end

    def close(self) -> None:
        """Let go of it."""
        self._socket.close()

    def _limit(self, deadline: Deadline) -> None:
        if deadline.expired(self._clock) or self._end.expired(self._clock):
            raise ConnectionError("not acknowledged in time (timeout)")
        self._socket.settimeout(_LOOK)
