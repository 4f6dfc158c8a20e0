"""TcpSource: the base of sources that accept connections: addresses, limits, TLS, and a thread for each connection.

Peers are not trusted. So connections are limited, in total and for each address. A slow handshake, and a connection
without data, time out. A connection that waits, for example for its channel, does not delay the others.

The file is long because the limits of connections, descriptors and handshakes count the same connections.
"""

from __future__ import annotations

import contextlib
import re
import resource
import selectors
import socket
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...model.errors import ConfigError
from ...model.options import option
from ...runtime.clock import Stop
from ...runtime.locks import Lock
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ...runtime.tls import closed_if_it_fails
from ...text.addresses import is_address
from ...text.plural import counted
from ..events.interfaces import Context, Outlet
from ..protocols.tls_files import RenewedTls, load_authorities, load_own, validity_errors
from .intake import Intake
from .unix_sockets import check_unix, is_unix, peer_of, unix_listener

_log = get_logger("loghub.agent.source")

#: Seconds to wait after a failed accept, and for connections to end when the source stops.
_PAUSE_SECONDS, _END_SECONDS = 0.5, 10.0
#: Limits, in seconds and bytes, of what a peer may still send after an answer that ends its connection.
_FINISH, _MOST_PASSED_OVER = 2.0, 32 << 20
_BACKLOG = 512
#: File descriptors left for channels, logs, monitoring and sinks: a number, or a share of the process's limit if that
#: is less.
_SPARE, _SPARE_SHARE = 64, 0.25
_READ = 1 << 18
_WAKE = "wake"
#: OpenSSL's messages when a peer refuses a certificate.
_REFUSED = re.compile(r"ALERT.*(CERTIFICATE|UNKNOWN_CA)")
_NO_CERTIFICATE = "PEER_DID_NOT_RETURN_A_CERTIFICATE"


_NUMBERS = re.compile(r"[\d.]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """Options of all sources that listen."""

    bind: str = option("127.0.0.1", doc="address to listen on; 0.0.0.0 or :: for all; unix:/path for a Unix socket")
    socket_mode: str = option("660", doc="permissions of a Unix socket, octal")

    def __post_init__(self) -> None:
        check_unix(self.bind, self.socket_mode)
        if _NUMBERS.fullmatch(self.bind) and not is_address(self.bind):
            raise ConfigError("bind", "must be an address of this machine", self.bind)
        if getattr(self, "port", 0) is None and not getattr(self, "ports", ()) and not is_unix(self.bind):
            raise ConfigError("port", 'is missing: port to listen on, or bind = "unix:/path"', None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpOptions(ListenOptions):
    """Options of all sources that accept connections."""

    max_connections: int = option(500, least=1, doc="maximum number of open connections")
    max_connections_per_peer: int | None = option(
        None, least=1, doc="maximum number of open connections from one address; empty for half of all"
    )
    silence: float = option(3600.0, least=0.001, doc="seconds after which a silent connection is closed")
    certificate: Path | None = option(None, doc="PEM file with the certificate; enables TLS")
    key: Path | None = option(None, doc="PEM file with the key, if it is not in the same file")
    client_authorities: Path | None = option(None, doc="PEM file with authorities; clients need a certificate of these")
    handshake_timeout: float = option(10.0, least=0.001, doc="seconds for a TLS handshake")

    def __post_init__(self) -> None:
        ListenOptions.__post_init__(self)
        if self.certificate is None and (self.key or self.client_authorities):
            raise ConfigError("certificate", "is needed for TLS, with key or client_authorities", None)

    def missing(self) -> Iterator[ConfigError]:
        """Yield errors of the certificate files."""
        try:
            self.tls()
        except ConfigError as error:
            yield error
        yield from validity_errors(self.certificate, self.key)

    def tls(self) -> ssl.SSLContext | None:
        """Build the server's TLS context; None without a certificate.

        :raises ConfigError: the files cannot be used.
        """
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        load_own(context, self.certificate, self.key)
        if self.client_authorities is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            load_authorities(context, "client_authorities", self.client_authorities)
        return context


class Connection:
    """The connection of one peer.

    :ivar peer: the peer's address.
    :ivar port: the local port.
    """

    def __init__(self, plain: socket.socket, peer: str, port: int, silence: float) -> None:
        self._socket, self._silence = plain, silence
        self.peer, self.port = peer, port

    def secure(self, tls: ssl.SSLContext, timeout: float) -> None:
        """Do the TLS handshake.

        :raises OSError: it failed, or took too long.
        """
        with closed_if_it_fails():
            self._socket = tls.wrap_socket(self._socket, server_side=True, do_handshake_on_connect=False)
        self._socket.settimeout(timeout)
        self._socket.do_handshake()

    def read(self, size: int = _READ, until: float | None = None) -> bytes:
        """Return the bytes that arrive next; empty at the end.

        :param until: deadline in monotonic seconds; None to apply only the option ``silence``.
        :raises OSError: the connection failed, or the time is over.
        """
        timeout = self._silence if until is None else min(self._silence, until - time.monotonic())
        if timeout <= 0:
            raise TimeoutError("the deadline has passed")
        self._socket.settimeout(timeout)
        data = self._socket.recv(size)
        if isinstance(self._socket, ssl.SSLSocket):  # recv() returns one TLS record at a time
            while data and len(data) < size and self._socket.pending():
                data += self._socket.recv(size - len(data))
        return data

    def send(self, data: bytes) -> None:
        """Send all bytes.

        :raises OSError: the connection failed, or the peer does not read.
        """
        self._socket.settimeout(min(self._silence, 60.0))
        self._socket.sendall(data)

    def finish(self) -> None:
        """Close the sending side, and let the peer read the last answer.

        Closing at once would discard the answer while the peer still sends; so its bytes are read and dropped for a
        while.
        """
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            until, left = time.monotonic() + _FINISH, _MOST_PASSED_OVER
            while left > 0 and (data := self.read(until=until)):
                left -= len(data)

    def interrupt(self) -> None:
        """Shut the connection down, which wakes its thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class TcpSource(ABC):
    """Source that accepts connections, and serves each on a thread of its own.

    :param ports: the ports to listen on; 0 for any free one. A Unix socket has none.
    :ivar addresses: the addresses listened on, once :attr:`listening` is set.
    """

    endless = True

    def __init__(self, options: TcpOptions, ports: Sequence[int], context: Context) -> None:
        self._tcp, self._intake = options, Intake(context)
        self._ports = [0] if is_unix(options.bind) else ports
        self._name, self._counters = context.name, context.counters
        files = (options.certificate, options.key), options.client_authorities
        self._tls = RenewedTls(options.tls, *files, f"source {context.name}", context)
        self._repeated, self._refused = RateLimitedLog(context.clock), RateLimitedLog(context.clock)
        self._faults = RateLimitedLog(context.clock)
        self._lock = Lock()  # guards the fields below
        self._connections: dict[Connection, threading.Thread] = {}
        self._peers: Counter[str] = Counter()
        self.addresses: list[tuple[str, int]] = []
        self.listening = threading.Event()

    @abstractmethod
    def _serve(self, connection: Connection) -> None:
        """Serve a connection until it ends. It is closed when the call returns or raises."""

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """:raises OSError: an address is not available."""
        self._outlet, self._stop = outlet, stop
        with contextlib.ExitStack() as opened, selectors.DefaultSelector() as selector:
            for port in self._ports:
                listener = opened.enter_context(listening(self._tcp, port))
                selector.register(listener, selectors.EVENT_READ)
                self.addresses.append(address_of(listener))
            self.listening.set()
            opened.callback(self._end_connections)
            opened.enter_context(woken_by(stop, selector))
            while not stop.is_set():
                for key, _ in selector.select():
                    if key.data is not _WAKE:
                        self._accept(key.fileobj, stop)  # type: ignore[arg-type]  # all are sockets

    def _accept(self, listener: socket.socket, stop: Stop) -> None:
        try:
            accepted, address = listener.accept()
        except BlockingIOError:
            return
        except OSError as error:  # for example too many open files: accept again when others have closed
            if (more := self._repeated.due_error(error)) is not None:
                _log.warning("source %s: cannot accept a connection: %s%s", self._name, error, more)
            stop.wait(_PAUSE_SECONDS)
            return
        if not self._has_spare_descriptors(accepted.fileno()):
            self._counters.add(ConnectionRefusedCount=1)
            accepted.close()
            return
        peer = peer_of(accepted) if accepted.family == socket.AF_UNIX else address[0]
        connection = Connection(accepted, peer, address_of(listener)[1], self._tcp.silence)
        thread = threading.Thread(
            target=self._serve_until_end,
            args=(connection,),
            name=f"producer-agent-{self._name}-{peer}",
            daemon=True,
        )
        if refusal := self._register(connection, thread):
            self._counters.add(ConnectionRefusedCount=1)
            connection.close()
            self._log_refusal(refusal)
            return
        accepted.settimeout(self._tcp.silence)
        keep_alive(accepted)
        try:
            thread.start()
        except RuntimeError as error:  # too many threads
            _log.warning("source %s: cannot serve %s: %s", self._name, connection.peer, error)
            self._counters.add(ConnectionRefusedCount=1)
            connection.close()
            self._unregister(connection)
            stop.wait(_PAUSE_SECONDS)

    def _has_spare_descriptors(self, descriptor: int) -> bool:
        """Return True if enough file descriptors are left for other components.

        A new descriptor is the lowest free number, so it shows how many are used. A source takes at most two thirds of
        the free ones, so that other sources can always get some.
        """
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        left = most - min(_SPARE, most * _SPARE_SHARE) - descriptor
        with self._lock:
            own = len(self._connections)
        if most == resource.RLIM_INFINITY or 2 * left > own:
            return True
        self._log_refusal(f"it has {own} open, and the process is near its limit of {most} open files (ulimit -n)")
        return False

    def _log_refusal(self, why: str) -> None:
        """Log a refusal, at most once in ten seconds; the peer only sees a closed connection."""
        if (more := self._repeated.due_error(OSError(why))) is not None:
            _log.warning("source %s: refuses connections: %s%s", self._name, why, more)

    def _register(self, connection: Connection, thread: threading.Thread) -> str:
        """Register a connection; return the reason if a limit is reached, else an empty text."""
        most, peer = self._tcp.max_connections, connection.peer
        of_peer = self._tcp.max_connections_per_peer or max(1, most // 2)
        with self._lock:
            if len(self._connections) >= most:
                return f"it has {most} open, the limit (max_connections)"
            if self._peers[peer] >= of_peer:
                return f"it has {of_peer} of {peer} open, the limit for one address (max_connections_per_peer)"
            self._connections[connection] = thread
            self._peers[peer] += 1
        self._counters.add(OpenConnectionCount=1)
        return ""

    def _serve_until_end(self, connection: Connection) -> None:
        try:
            if (tls := self._tls.context()) is not None:
                connection.secure(tls, self._tcp.handshake_timeout)
            self._serve(connection)
        except OSError as error:  # a failure of the peer or the network
            self._counters.add(ConnectionFailedCount=1)
            self._log_failure(connection.peer, error)
        except Exception as error:  # noqa: BLE001  # a bug, here or in an interceptor; other connections continue
            self._counters.add(GenericProcessingFail=1)
            if (more := self._repeated.due_error(error)) is not None:
                _log.exception("source %s: the connection of %s failed%s", self._name, connection.peer, more)
        finally:
            connection.close()
            self._unregister(connection)

    def log_fault(self, peer: str, fault: object) -> None:
        """Log a fault of a peer, at most once in ten seconds for each address and fault.

        :param fault: the fault. Text that came from the peer must follow a colon: the text before the colon
            distinguishes kinds of faults.
        """
        kind = _NUMBERS.sub("", str(fault).partition(":")[0])
        silent = self._faults.due((peer, kind), 1)
        if silent is not None:
            more = f" ({counted(silent, 'time')} more since the last message)" if silent else ""
            _log.warning("source %s: closing the connection of %s: %s%s", self._name, peer, fault, more)

    def _log_failure(self, peer: str, error: OSError) -> None:
        """Log a failed connection: as a warning if a certificate was refused, else for debugging.

        The operator has to act if peers refuse the server's certificate. A peer whose certificate is refused often does
        not learn why.
        """
        reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
        if isinstance(error, ssl.SSLCertVerificationError):
            self.log_fault(peer, f"its certificate is invalid: {error.verify_message}")
        elif reason == _NO_CERTIFICATE:
            self.log_fault(peer, "it sent no certificate (client_authorities)")
        elif _REFUSED.search(reason) and (more := self._refused.due_error(error)) is not None:
            _log.warning("source %s: %s refuses the server's certificate: %s%s", self._name, peer, error, more)
        else:
            _log.debug("source %s: %s: %s", self._name, peer, error)

    def _unregister(self, connection: Connection) -> None:
        with self._lock:
            del self._connections[connection]
            self._peers[connection.peer] -= 1
            if not self._peers[connection.peer]:
                del self._peers[connection.peer]
        self._counters.add(OpenConnectionCount=-1)

    def _end_connections(self) -> None:
        with self._lock:
            left = dict(self._connections)
        for connection in left:
            connection.interrupt()
        until = time.monotonic() + _END_SECONDS
        for thread in left.values():
            thread.join(max(0.0, until - time.monotonic()))


@contextlib.contextmanager
def woken_by(stop: Stop, selector: selectors.BaseSelector) -> Iterator[None]:
    """Make ``stop`` wake the selector during the block. The key that it selects then has the data ``_WAKE``."""
    here, there = socket.socketpair()

    def wake() -> None:
        with contextlib.suppress(OSError):  # the block ends at the same time
            there.send(b"x")

    with here, there:
        there.setblocking(False)
        selector.register(here, selectors.EVENT_READ, _WAKE)
        with stop.waking(wake):
            if stop.is_set():
                wake()
            yield


@contextlib.contextmanager
def listening(
    options: ListenOptions, port: int, kind: socket.SocketKind = socket.SOCK_STREAM
) -> Iterator[socket.socket]:
    """Listen on a port, or on a Unix socket, for the block.

    :raises OSError: the address is not available; the message names it.
    """
    if not is_unix(options.bind):
        with listen(options.bind, port, kind) as listener:
            yield listener
        return
    with unix_listener(options.bind, kind, options.socket_mode) as listener:
        if kind == socket.SOCK_STREAM:
            listener.listen(_BACKLOG)
        listener.setblocking(False)
        yield listener


def address_of(listener: socket.socket) -> tuple[str, int]:
    """Return the address and the port of a socket; a Unix socket has the port 0."""
    name = listener.getsockname()
    return (name, 0) if isinstance(name, str) else name[:2]


def listen(host: str, port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """Return a listening, non-blocking socket.

    :raises OSError: the address is not available; the message names it.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=kind, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, kind)
    except OSError as error:
        raise OSError(error.errno, f"{host}:{port}: {error.strerror or error}") from error
    try:
        if kind == socket.SOCK_STREAM:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and host == "::":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        if kind == socket.SOCK_STREAM:
            listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"{host}:{port}: {error.strerror or error}") from error
    return listener


def keep_alive(connected: socket.socket) -> None:
    """Enable keepalive, so that the system detects a vanished peer within about two minutes."""
    if connected.family == socket.AF_UNIX:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
