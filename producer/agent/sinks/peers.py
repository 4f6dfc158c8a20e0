"""A connection to whoever takes events over TCP, with TLS or without; each wait on it has an end."""

from __future__ import annotations

import select
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from ...clock import Clock, Deadline
from ...errors import ConfigError
from ..options import option

_READ = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOptions:
    """Of every sink that connects."""

    tls: bool = option(False, doc="use TLS")
    verify: bool = option(True, doc="check the receiver's certificate")
    authorities: Path | None = option(None, doc="a PEM file of authorities; empty for the system's")

    def __post_init__(self) -> None:
        if not self.tls and (self.authorities is not None or not self.verify):
            raise ConfigError("tls", "is needed with authorities or verify", self.tls)

    def context(self) -> ssl.SSLContext | None:
        """For the client's side; None without TLS.

        :raises ConfigError: the file cannot be used.
        """
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.authorities)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError("authorities", f"cannot be used: {error}", str(self.authorities)) from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


class Peer:
    """See the module.

    :param timeout: seconds to connect, and for a handshake.
    :raises OSError: there is nobody, or nobody that can be trusted.
    """

    def __init__(self, address: tuple[str, int], timeout: float, tls: ssl.SSLContext | None, clock: Clock) -> None:
        self._clock = clock
        self._socket = socket.create_connection(address, timeout)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=address[0])

    def is_gone(self) -> bool:
        """Whether it has closed, or says something that nobody asked for."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def send(self, data: bytes, deadline: Deadline) -> None:
        """All of it.

        :raises OSError: the connection broke, or it was not in time.
        """
        self._limit(deadline)
        self._socket.sendall(data)

    def receive(self, deadline: Deadline, most: int = _READ) -> bytes:
        """What it says; something at least.

        :raises OSError: the connection broke, or it was not in time.
        """
        self._limit(deadline)
        data = self._socket.recv(most)
        if not data:
            raise ConnectionError("it closed the connection before it had acknowledged")
        return data

    def close(self) -> None:
        """Let go of it."""
        self._socket.close()

    def _limit(self, deadline: Deadline) -> None:
        left = deadline.remaining(self._clock)
        if left is not None and left <= 0:
            raise TimeoutError("not acknowledged in time (timeout)")
        self._socket.settimeout(left)
