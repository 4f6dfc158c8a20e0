"""A server that sends or reads a byte at a time for as long as its client stays, and one that cuts connections."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from producer.runtime.tls import closed_if_it_fails

#: The pause between two bytes, seconds.
PACE = 0.01

#: The treatment of a connection, until the event is set.
Behaviour = Callable[[socket.socket, threading.Event], None]


def drip_headers(connection: socket.socket, stop: threading.Event) -> None:
    """Send an endless header after a status line that promises success."""
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 200 OK\r\nx-log-requestid: drip\r\nX-Slow: ")
    _repeat(connection, b"x", stop)


def drip_record(connection: socket.socket, stop: threading.Event) -> None:
    """Send an endless TLS record, of which TLS passes nothing on."""
    read_request(connection)
    with socket.socket(fileno=socket.dup(connection.fileno())) as below:  # type: ignore[attr-defined]
        below.sendall(b"\x17\3\3\x40\0")
        _repeat(below, b"x", stop)


def repeat_continue(connection: socket.socket, stop: threading.Event) -> None:
    """Send one interim response after the other."""
    connection.recv(1 << 16)
    _repeat(connection, b"HTTP/1.1 100 Continue\r\n\r\n", stop)


def drip_body(connection: socket.socket, stop: threading.Event) -> None:
    """Send a body slowly."""
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: 1000000\r\n\r\n")
    _repeat(connection, b"x", stop)


def drip_body_of_unknown_length(connection: socket.socket, stop: threading.Event) -> None:
    """Send a body that ends with the connection; the client's library closes its side before it reads."""
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.0 200 OK\r\nx-log-requestid: drip\r\n\r\n")
    _repeat(connection, b"x", stop)


def answer_once(connection: socket.socket, stop: threading.Event) -> None:
    """Answer the first request of a connection at once, the next one never completely."""
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nx-log-requestid: once\r\nContent-Length: 0\r\n\r\n")
    drip_headers(connection, stop)


def read_slowly(connection: socket.socket, stop: threading.Event) -> None:
    """Read the request byte by byte."""
    while not stop.wait(PACE):
        connection.recv(1)


def drip_tunnel(connection: socket.socket, stop: threading.Event) -> None:
    """Act as a proxy that never ends its answer to CONNECT."""
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 200 Connection established\r\nX-Slow: ")
    _repeat(connection, b"x", stop)


def open_tunnel(connection: socket.socket, target: int) -> None:
    """Act as a working proxy: connect to a port of this machine, and relay."""
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
    relay(connection, target)


def relay(connection: socket.socket, target: int) -> None:
    """Relay between a client and a port of this machine, until both sides are closed."""
    with socket.create_connection(("127.0.0.1", target)) as far:
        back = threading.Thread(target=_hand_on, args=(far, connection))
        back.start()
        _hand_on(connection, far)
        back.join()


def refuse_tunnel(connection: socket.socket, _stop: threading.Event) -> None:
    """Act as a proxy that refuses the tunnel."""
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")


def open_no_tunnel(connection: socket.socket, _stop: threading.Event) -> None:
    """Act as a proxy that confirms the tunnel, and closes it."""
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")


def hear_and_close(connection: socket.socket, _stop: threading.Event) -> None:
    """Read, and close without a handshake or an answer to CONNECT."""
    connection.recv(1 << 16)


def hear_and_reset(connection: socket.socket, _stop: threading.Event) -> None:
    """Read, and reset the connection."""
    connection.recv(1 << 16)
    reset_at_close(connection)


def speak_no_tls(connection: socket.socket, _stop: threading.Event) -> None:
    """Send bytes that are not a handshake."""
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 400 this is no TLS\r\n\r\n")


def hang(connection: socket.socket, stop: threading.Event) -> None:
    """Send nothing."""
    connection.recv(1 << 16)
    stop.wait(30)


def take_one_byte(connection: socket.socket, _stop: threading.Event) -> None:
    """Reset after the first byte of the request."""
    connection.recv(1)
    reset_at_close(connection)


def take_one_byte_and_hang(connection: socket.socket, stop: threading.Event) -> None:
    """Read one byte of the request, and then nothing."""
    connection.recv(1)
    stop.wait(30)


def take_request_and_reset(connection: socket.socket, _stop: threading.Event) -> None:
    """Reset instead of a response."""
    read_request(connection)
    reset_at_close(connection)


def take_request_and_close(connection: socket.socket, _stop: threading.Event) -> None:
    """Close instead of a response."""
    read_request(connection)


def take_request_and_hang(connection: socket.socket, stop: threading.Event) -> None:
    """Send nothing instead of a response."""
    read_request(connection)
    stop.wait(30)


def answer_half(connection: socket.socket, _stop: threading.Event) -> None:
    """Close within the status line."""
    read_request(connection)
    connection.sendall(b"HTTP/1.1 2")


def answer_with_two_lengths(connection: socket.socket, _stop: threading.Event) -> None:
    """Send a response that the client's library refuses to read."""
    read_request(connection)
    connection.sendall(b"HTTP/1.1 500 Bad\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx")


def break_tls(connection: socket.socket, _stop: threading.Event) -> None:
    """Send bytes below TLS that are not TLS."""
    read_request(connection)
    with socket.socket(fileno=socket.dup(connection.fileno())) as below:  # type: ignore[attr-defined]
        below.sendall(b"this is no TLS")


def reset_at_close(connection: socket.socket) -> None:
    """Close so that the other side sees a reset (RST), not an end (FIN)."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def answer(connection: socket.socket, _stop: threading.Event) -> None:
    """Acknowledge every request at once."""
    while read_request(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nx-log-requestid: well\r\nContent-Length: 0\r\n\r\n")


def read_request(connection: socket.socket) -> bool:
    """Read headers and body, which may come in several pieces; False at the end of the connection."""
    with connection.makefile("rb") as file:
        length = 0
        while (line := file.readline().lower()) not in {b"\r\n", b""}:
            name, _, value = line.partition(b":")
            length = int(value) if name == b"content-length" else length
        file.read(length)
        return bool(line)


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
    # Set before listening, so that connections inherit it: a small buffer fills soon.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.bind(("127.0.0.1", 0))
    listener.listen()

    def treat(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            if tls is None:
                behave(connection, stop)
            else:
                with closed_if_it_fails():
                    wrapped = tls.wrap_socket(connection, server_side=True)
                with wrapped:
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
            thread.join(60)
