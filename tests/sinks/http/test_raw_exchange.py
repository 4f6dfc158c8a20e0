"""The socket calls of one request, in both implementations."""

from __future__ import annotations

import errno
import importlib
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from types import ModuleType

import pytest

from producer.sinks.http.raw_exchange import TimedSocket
from tests.support.waiting import PATIENCE
from tests.wire.twins import TWINS

_ANSWER = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> ModuleType:
    name = {"pure": "raw_exchange", "native": "_raw_exchange"}[request.param]
    return importlib.import_module(f"producer.sinks.http.{name}")


def timed(sock: socket.socket, left: float = PATIENCE, silence: float = PATIENCE) -> TimedSocket:
    return TimedSocket(sock, lambda: left, silence)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


@pytest.mark.parametrize("size", [0, 1, 16 * 1024])
def test_a_small_body_leaves_with_its_head(twin: ModuleType, size: int) -> None:
    """A request of one log is one step, and one packet where there are packets."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        there.sendall(_ANSWER)
        assert twin.exchange(timed(here), b"head", b"x" * size, 100) == (True, None, _ANSWER)
        assert there.recv(2**20) == b"head" + b"x" * size


def test_all_bytes_are_sent_once_in_order_even_if_the_socket_takes_only_parts(
    twin: ModuleType, ends: tuple[socket.socket, socket.socket]
) -> None:
    """All bytes are sent once, in order, even if the socket takes only parts; the response is read up to the limit."""
    here, there = ends
    head, body = b"h" * 300_000, bytes(range(256)) * 8_000
    came: list[bytes] = []

    def read() -> None:
        left = len(head) + len(body)
        while left:
            came.append(there.recv(10_007))
            left -= len(came[-1])
        there.sendall(_ANSWER)

    reader = threading.Thread(target=read)
    reader.start()
    assert twin.exchange(timed(here), head, body, 5) == (True, None, _ANSWER[:5])
    reader.join()
    assert b"".join(came) == head + body


def test_an_answer_is_read_though_the_request_did_not_leave(
    twin: ModuleType, ends: tuple[socket.socket, socket.socket]
) -> None:
    """A response can be read although the server did not read the request."""
    here, there = ends
    there.sendall(_ANSWER)
    there.close()
    assert twin.exchange(timed(here), b"head", b"body", 100) == (False, None, _ANSWER)


def test_the_end_of_a_connection_is_an_empty_answer(
    twin: ModuleType, ends: tuple[socket.socket, socket.socket]
) -> None:
    """The whole request was sent, and the end of the connection reads as an empty response."""
    here, there = ends
    there.shutdown(socket.SHUT_WR)
    assert twin.exchange(timed(here), b"head", b"body", 100) == (True, None, b"")


@pytest.mark.parametrize("times", [{"left": 0.02}, {"silence": 0.02}], ids=["attempt", "silence"])
def test_errors_come_with_what_was_sent_silence_after_or_within_the_request_or_a_closed_socket(
    twin: ModuleType, ends: tuple[socket.socket, socket.socket], times: dict[str, float]
) -> None:
    """Errors come with what was sent: silence after or within the request, or a closed socket."""
    here, _ = ends
    whole, error, answer = twin.exchange(timed(here, **times), b"head", b"body", 100)
    assert (whole, str(error), answer) == (True, "timed out", b"")
    whole, error, _ = twin.exchange(timed(here, **times), b"head", b"x" * 2**24, 100)
    assert (whole, type(error)) == (False, TimeoutError)
    here.close()
    whole, error, _ = twin.exchange(timed(here), b"head", b"body", 100)
    assert (whole, error.errno) == (False, errno.EBADF)


def test_a_request_that_is_read_slowly_has_one_end(twin: ModuleType, ends: tuple[socket.socket, socket.socket]) -> None:
    """A slowly read request and its response share the attempt's remaining time."""
    here, there = ends
    end = time.monotonic() + 0.2

    def left() -> float:
        if end <= time.monotonic():
            raise TimeoutError("timed out")
        return end - time.monotonic()

    stop = threading.Event()

    def read() -> None:
        while not stop.wait(0.01):
            there.recv(1000)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        whole, error, _ = twin.exchange(TimedSocket(here, left, PATIENCE), b"head", b"x" * 2**24, 100)
    finally:
        stop.set()
        reader.join()
    assert (whole, type(error)) == (False, TimeoutError)


class _HandlerError(Exception):
    """Raised by a user's signal handler."""


@pytest.mark.parametrize("raises", [True, False])
def test_a_signal_is_handled_while_an_answer_is_waited_for(
    twin: ModuleType, ends: tuple[socket.socket, socket.socket], raises: bool
) -> None:
    """A signal handler may raise during the wait; otherwise the wait continues, and the request is not sent again.

    The signal is repeated, since no system call ends for a signal that comes just before it.
    """
    here, there = ends
    handled: list[int] = []

    def handler(number: int, _frame: object) -> None:
        handled.append(number)
        if len(handled) > 1:
            return
        if raises:
            raise _HandlerError
        there.sendall(_ANSWER)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(_HandlerError) if raises else nullcontext():
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.05)
            assert twin.exchange(timed(here), b"head", b"body", 100) == (True, None, _ANSWER)
            assert there.recv(100) == b"headbody"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_socket_is_quiet_until_something_or_its_end_has_come(
    twin: ModuleType, ends: tuple[socket.socket, socket.socket]
) -> None:
    """is_quiet asks the kernel without waiting."""
    here, there = ends
    assert twin.is_quiet(here.fileno())
    there.sendall(b"x")
    assert not twin.is_quiet(here.fileno())
    here.recv(1)
    assert twin.is_quiet(here.fileno())
    there.close()
    assert not twin.is_quiet(here.fileno())
