"""A server that keeps its clients waiting, a byte at a time, for as long as they stay."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

#: Between two bytes, seconds.
PACE = 0.01

#: What is done with a connection, until the event is set.
Behaviour = Callable[[socket.socket, threading.Event], None]


def drip_headers(connection: socket.socket, stop: threading.Event) -> None:
    """A header without an end, after a status line that promises success."""
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 200 OK\r\nx-log-requestid: drip\r\nX-Slow: ")
    _repeat(connection, b"x", stop)


def repeat_continue(connection: socket.socket, stop: threading.Event) -> None:
    """One interim answer after the other."""
    connection.recv(1 << 16)
    _repeat(connection, b"HTTP/1.1 100 Continue\r\n\r\n", stop)


def drip_body(connection: socket.socket, stop: threading.Event) -> None:
    """A body that is long in coming."""
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: 1000000\r\n\r\n")
    _repeat(connection, b"x", stop)


def drip_body_of_unknown_length(connection: socket.socket, stop: threading.Event) -> None:
    """A body that ends when the connection does: the client's library gives up its own end before it reads."""
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.0 200 OK\r\nx-log-requestid: drip\r\n\r\n")
    _repeat(connection, b"x", stop)


def answer_once(connection: socket.socket, stop: threading.Event) -> None:
    """The first request of a connection is answered at once, the next one never to its end."""
    _read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nx-log-requestid: once\r\nContent-Length: 0\r\n\r\n")
    drip_headers(connection, stop)


def read_slowly(connection: socket.socket, stop: threading.Event) -> None:
    """The request is taken byte by byte."""
    while not stop.wait(PACE):
        connection.recv(1)


def drip_tunnel(connection: socket.socket, stop: threading.Event) -> None:
    """A proxy that never ends its answer to CONNECT."""
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 200 Connection established\r\nX-Slow: ")
    _repeat(connection, b"x", stop)


def open_tunnel(connection: socket.socket, target: int) -> None:
    """A proxy that does its work: it connects to a port of this machine, and hands on what comes."""
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
    with socket.create_connection(("127.0.0.1", target)) as far:
        back = threading.Thread(target=_hand_on, args=(far, connection))
        back.start()
        _hand_on(connection, far)
        back.join()


def _read_request(connection: socket.socket) -> None:
    """Headers and body, which may come in several pieces."""
    with connection.makefile("rb") as file:
        length = 0
        while (line := file.readline().lower()) not in {b"\r\n", b""}:
            name, _, value = line.partition(b":")
            length = int(value) if name == b"content-length" else length
        file.read(length)


def _hand_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


def _repeat(connection: socket.socket, data: bytes, stop: threading.Event) -> None:
    while not stop.wait(PACE):
        connection.sendall(data)


@contextmanager
def serve(behave: Behaviour, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Treat every connection in the same way, each on a thread of its own.

    :yields: the port.
    """
    stop = threading.Event()
    threads: list[threading.Thread] = []
    listener = socket.socket()
    # Before it listens, so that connections inherit it: a small buffer fills soon.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.bind(("127.0.0.1", 0))
    listener.listen()

    def treat(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            if tls is None:
                behave(connection, stop)
            else:
                # Of a client that is gone already, the ssl module would leave an open socket behind.
                connection.getpeername()
                with tls.wrap_socket(connection, server_side=True) as wrapped:
                    behave(wrapped, stop)

    def accept() -> None:
        with suppress(OSError):
            while True:
                thread = threading.Thread(target=treat, args=(listener.accept()[0],), daemon=True)
                threads.append(thread)
                thread.start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield listener.getsockname()[1]
    finally:
        stop.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in (accepting, *threads):
            thread.join(10)
