"""Sockets of failed connections."""

from __future__ import annotations

import select
import socket
import ssl
import struct
from typing import Any

import pytest

from producer.runtime.tls import closed_if_it_fails


def test_a_peer_that_resets_before_the_handshake_leaves_no_socket_open() -> None:
    """A peer's reset before the handshake leaves no socket open."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        number = ours.fileno()
        theirs, _ = listener.accept()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        select.select([ours], [], [], 10)
        with pytest.raises(ConnectionResetError) as raised, closed_if_it_fails():
            ssl.create_default_context().wrap_socket(ours, server_hostname="localhost")
        assert raised.value.__traceback__ is not None
        # Another thread may have opened a file of this number meanwhile.
        with pytest.raises(OSError, match=r"Bad file descriptor|non-socket"):
            socket.socket(fileno=socket.dup(number))


def test_an_interrupt_while_a_connection_is_made_leaves_no_socket_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted connection leaves no socket open."""
    made: list[Any] = []

    def interrupted(*given: object) -> None:  # without a name for the socket, like a C function
        made.append(given[0])
        raise KeyboardInterrupt

    def connect() -> None:
        with closed_if_it_fails():
            socket.create_connection(("127.0.0.1", 1))

    monkeypatch.setattr("socket.socket", type("Interrupted", (socket.socket,), {"connect": interrupted}))
    with pytest.raises(KeyboardInterrupt):
        connect()
    assert [sock.fileno() for sock in made] == [-1]
