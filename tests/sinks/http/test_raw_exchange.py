"""What is asked of a socket at once, by both twins."""

from __future__ import annotations

import errno
import importlib
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from types import ModuleType

import pytest

from tests.wire.twins import TWINS

_ANSWER = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> ModuleType:
    name = {"pure": "raw_exchange", "native": "_raw_exchange"}[request.param]
    return importlib.import_module(f"producer.sinks.http.{name}")


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
        assert twin.exchange(here, b"head", b"x" * size, 100) == (True, None, _ANSWER)
        assert there.recv(2**20) == b"head" + b"x" * size


def test_all_of_a_request_leaves_however_slowly_it_is_read(
    twin: ModuleType, ends: tuple[socket.socket, socket.socket]
) -> None:
    """In order, and each byte once, where the socket takes only parts; no more of the answer is read than asked for."""
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
    assert twin.exchange(here, head, body, 5) == (True, None, _ANSWER[:5])
    reader.join()
    assert b"".join(came) == head + body


def test_an_answer_is_read_though_the_request_did_not_leave(
    twin: ModuleType, ends: tuple[socket.socket, socket.socket]
) -> None:
    """A server may answer and close before it has read anything."""
    here, there = ends
    there.sendall(_ANSWER)
    there.close()
    assert twin.exchange(here, b"head", b"body", 100) == (False, None, _ANSWER)


def test_the_end_of_a_connection_is_an_empty_answer(
    twin: ModuleType, ends: tuple[socket.socket, socket.socket]
) -> None:
    """The whole request has left."""
    here, there = ends
    there.shutdown(socket.SHUT_WR)
    assert twin.exchange(here, b"head", b"body", 100) == (True, None, b"")


def test_what_goes_wrong_is_told_with_what_has_left(
    twin: ModuleType, ends: tuple[socket.socket, socket.socket]
) -> None:
    """Silence beyond the socket's time after the whole request, or in the midst of it; a socket that is closed."""
    here, _ = ends
    for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
        here.setsockopt(socket.SOL_SOCKET, option, b"\0" * 8 + (1000).to_bytes(8, "little"))
    whole, error, answer = twin.exchange(here, b"head", b"body", 100)
    assert (whole, error.errno, answer) == (True, errno.EAGAIN, b"")
    whole, error, _ = twin.exchange(here, b"head", b"x" * 2**24, 100)
    assert (whole, type(error)) == (False, BlockingIOError)
    here.close()
    whole, error, _ = twin.exchange(here, b"head", b"body", 100)
    assert (whole, error.errno) == (False, errno.EBADF)


class _HandlerError(Exception):
    """What a user's handler raises."""


@pytest.mark.parametrize("raises", [True, False])
def test_a_signal_is_handled_while_an_answer_is_waited_for(
    twin: ModuleType, ends: tuple[socket.socket, socket.socket], raises: bool
) -> None:
    """Its handler may raise; else the wait goes on, and the request is not sent again. It comes again and
    again, since no system call ends for one that comes just before it.
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
            assert twin.exchange(here, b"head", b"body", 100) == (True, None, _ANSWER)
            assert there.recv(100) == b"headbody"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_socket_is_quiet_until_something_or_its_end_has_come(
    twin: ModuleType, ends: tuple[socket.socket, socket.socket]
) -> None:
    """Asked of the kernel, which is not waited for."""
    here, there = ends
    assert twin.is_quiet(here.fileno())
    there.sendall(b"x")
    assert not twin.is_quiet(here.fileno())
    here.recv(1)
    assert twin.is_quiet(here.fileno())
    there.close()
    assert not twin.is_quiet(here.fileno())


def test_a_socket_that_python_keeps_the_time_of_is_waited_for_as_python_does(
    twin: ModuleType, ends: tuple[socket.socket, socket.socket]
) -> None:
    """Below it the kernel's socket never waits."""
    here, _ = ends
    here.settimeout(0.01)
    whole, error, _ = twin.exchange(here, b"head", b"body", 100)
    assert (whole, type(error)) == (True, TimeoutError)


def test_a_socket_that_can_only_send_all_is_one(twin: ModuleType, ends: tuple[socket.socket, socket.socket]) -> None:
    """As that of pyOpenSSL, which some programs put in place of the standard library's."""
    here, there = ends

    class OnlyAll:
        def sendall(self, data: bytes) -> None:
            here.sendall(data)

        def recv(self, size: int) -> bytes:
            return here.recv(size)

        def gettimeout(self) -> float:
            return 20.0

    there.sendall(_ANSWER)
    assert twin.exchange(OnlyAll(), b"head", b"body", 100) == (True, None, _ANSWER)
