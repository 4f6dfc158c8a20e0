"""The connection of the sinks ``forward``, ``avro`` and ``thrift``: TLS with failing receivers."""

import fcntl
import resource
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from producer.agent.sinks import peers
from producer.agent.sinks.peers import Peer
from producer.runtime.clock import Deadline, SystemClock
from tests.support.waiting import allowed


@contextmanager
def _serving(context: ssl.SSLContext) -> Iterator[int]:
    def shake(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        try:
            context.wrap_socket(peer, server_side=True).close()
        except OSError:
            peer.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=shake, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(60)


def _trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def _shaken(address: tuple[str, int], timeout: float, context: ssl.SSLContext) -> None:
    clock = SystemClock()
    peer = Peer(address, timeout, context, clock)
    try:
        peer.shake(Deadline.after(clock, timeout))
    finally:
        peer.close()


@pytest.mark.parametrize(
    ("name", "expired", "own", "said"),
    [
        ("localhost", False, False, "unable to get local issuer certificate|self-signed"),
        ("elsewhere", False, True, "Hostname mismatch"),
        ("localhost", True, True, "certificate has expired"),
    ],
    ids=["authority", "name", "expired"],
)
def test_a_receiver_that_cannot_be_trusted_gets_nothing(name: str, expired: bool, own: bool, said: str) -> None:
    """Another authority, another name, or an expired certificate: an error names it, and the connection is closed."""
    authority = trustme.CA()
    until = datetime.now(UTC) - timedelta(days=1) if expired else None
    certificate = authority.issue_cert(name, not_after=until) if until else authority.issue_cert(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    trusted = _trusting(authority if own else trustme.CA())
    with _serving(context) as port, pytest.raises(ssl.SSLCertVerificationError, match=said):
        _shaken(("localhost", port), 10, trusted)


def test_a_handshake_that_hangs_ends_with_the_time_for_a_connection() -> None:
    """A TLS handshake without an answer ends after connect_timeout."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        begun = time.monotonic()
        with pytest.raises(ConnectionError, match="not acknowledged in time"):
            _shaken(("localhost", listener.getsockname()[1]), 0.3, ssl.create_default_context())
        assert time.monotonic() - begun < allowed(5)


def test_a_reset_before_the_handshake_leaves_no_socket_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A reset before the handshake leaves no socket open, even while the error is referenced."""
    numbers: list[int] = []

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        ours = socket.socket()
        ours.settimeout(timeout)
        ours.connect(address)
        numbers.append(ours.fileno())
        theirs, _ = listener.accept()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        select.select([ours], [], [], 10)
        return ours

    monkeypatch.setattr(peers.socket, "create_connection", connect)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "127.0.0.1", listener.getsockname()[1]
        with pytest.raises(OSError) as raised:
            _shaken(address, 10, ssl.create_default_context())
        assert raised.value.__traceback__ is not None
        with pytest.raises(OSError, match="Bad file descriptor"):
            socket.socket(fileno=socket.dup(numbers[0]))


def test_a_receiver_that_has_closed_is_noticed_behind_any_number_of_files() -> None:
    """A closed connection is noticed even if its descriptor is too high for ``select``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    here, there = socket.socketpair()
    with here, there, socket.create_server(("127.0.0.1", 0)) as listener:
        peer = Peer(listener.getsockname(), 10, None, SystemClock())
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
            peer._socket.close()
            peer._socket = socket.socket(fileno=fcntl.fcntl(here.fileno(), fcntl.F_DUPFD_CLOEXEC, 2000))
            assert not peer.is_gone()
            there.close()
            assert peer.is_gone()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            peer.close()
