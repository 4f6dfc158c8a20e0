"""IO threads get the interpreter before threads that call ``send``."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from producer import Producer, ProducerConfig, Stream
from producer.pipeline import admission
from producer.runtime import gil
from producer.runtime.gil import give_way
from producer.sinks.http.raw_exchange import TimedSocket, exchange_at_once
from producer.testing import RecordingSink
from producer.wire import packing
from tests.support.waiting import PATIENCE

compiled = gil._compiled
pytestmark = pytest.mark.skipif(compiled is None, reason="needs the native implementation")

_LOG = {"message": "m"}


@pytest.fixture
def kept() -> Iterator[None]:
    """Make the interpreter switch threads only on request."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.fixture
def asking() -> Iterator[None]:
    """Let an IO thread ask for the interpreter."""
    assert compiled is not None
    compiled.begin_to_ask()
    try:
        yield
    finally:
        compiled.end_asking()


@pytest.fixture
def stream() -> Iterator[Stream]:
    """Return a stream with an open batch, whose next logs take the short way."""
    config = ProducerConfig(linger_ms=60_000)
    with Producer(sink=RecordingSink(), config=config) as producer:
        stream = producer.stream("p", "l")
        for _ in range(3):
            stream.send(_LOG)
        yield stream


class Waiter:
    """A thread that needs the interpreter once."""

    def __init__(self) -> None:
        self.ran = False
        self._go = threading.Lock()
        self._go.acquire()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        self.ran = True

    def __enter__(self) -> Waiter:
        self._go.release()  # from here on it waits for the interpreter, which is not released for this
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(PATIENCE)


@pytest.mark.usefixtures("kept", "asking")
def test_a_sender_yields_as_soon_as_an_io_thread_asks_not_after_5_ms(stream: Stream) -> None:
    """A sender yields as soon as an IO thread asks, not after 5 ms."""
    with Waiter() as waiter:
        assert any(_ran_after_a_log(stream, waiter) for _ in range(1000))


def _ran_after_a_log(stream: Stream, waiter: Waiter) -> bool:
    stream.send(_LOG)
    return waiter.ran


@pytest.mark.usefixtures("kept")
def test_while_no_thread_asks_a_sender_does_not_pause_a_pause_costs_more_than_a_hundred_logs(stream: Stream) -> None:
    """While no thread asks, a sender does not pause: a pause costs more than a hundred logs."""
    with Waiter() as waiter:
        for _ in range(1000):
            stream.send(_LOG)
        assert not waiter.ran


@pytest.mark.parametrize(
    "send",
    [
        lambda stream: stream.send_many([_LOG, _LOG]),
        lambda stream: stream.send_lines(b"one\ntwo\n"),
        lambda stream: stream.send_arrow(pa.table({"message": ["m", "n"]})),
    ],
)
def test_a_sender_of_many_logs_yields_once_for_each_piece(
    stream: Stream, send: Callable[[Stream], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender of many logs yields once for each piece."""
    asked: list[None] = []
    monkeypatch.setattr(admission, "give_way", lambda: asked.append(None))
    send(stream)
    assert asked == [None]


@pytest.mark.usefixtures("asking")
def test_a_thread_that_asks_and_never_gets_the_interpreter_does_not_block_a_sender() -> None:
    """A thread that asks, and never gets the interpreter, does not block a sender."""
    started = time.monotonic()
    assert give_way()
    assert time.monotonic() - started < PATIENCE


def test_no_sender_yields_while_no_thread_asks() -> None:
    assert not give_way()


@pytest.mark.usefixtures("asking")
def test_the_asking_thread_is_not_in_the_child_whose_sends_do_not_pause() -> None:
    """The asking thread is not in the child, whose sends do not pause."""
    child = os.fork()
    if child == 0:
        os._exit(int(give_way()))
    assert os.waitpid(child, 0)[1] == 0
    assert give_way()


def _asks(work: Callable[[], object]) -> bool:
    """Return True if a thread that repeats this work asks for the interpreter."""
    seen = threading.Event()

    def run() -> None:
        while not seen.is_set():
            work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    end = time.monotonic() + PATIENCE
    found = False
    while not found and time.monotonic() < end:
        found = give_way()
    seen.set()
    thread.join(PATIENCE)
    return found


@pytest.mark.skipif(packing.pack_lz4 is packing.pure_pack_lz4, reason="lz4 or OpenSSL are not to be found in this way")
def test_an_io_thread_asks_for_the_interpreter_after_packing_a_batch() -> None:
    data = bytes(1024 * 1024)
    assert _asks(lambda: packing.pack_lz4(data))


@pytest.fixture
def answering() -> Iterator[socket.socket]:
    """Yield a socket that answers everything, and waits without the interpreter, as without TLS."""
    ours, theirs = socket.socketpair()
    program = (
        "import socket\n"
        f"with socket.socket(fileno={theirs.fileno()}) as there:\n"
        "    while there.recv(100_000):\n"
        "        there.sendall(b'answer')\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], pass_fds=[theirs.fileno()]), ours:
        theirs.close()
        ours.settimeout(None)
        yield ours


def test_an_io_thread_asks_for_the_interpreter_after_an_answer(answering: socket.socket) -> None:
    body = bytes(16 * 1024)
    assert _asks(lambda: exchange_at_once(TimedSocket(answering, lambda: PATIENCE, PATIENCE), b"head", body, 100_000))


def test_thousands_of_small_requests_a_second_would_each_make_a_sender_pause(answering: socket.socket) -> None:
    """Thousands of small requests a second would each make a sender pause."""
    done = threading.Event()

    def exchange() -> None:
        for _ in range(200):
            exchange_at_once(TimedSocket(answering, lambda: PATIENCE, PATIENCE), b"head", b"body", 100)
        done.set()

    threading.Thread(target=exchange, daemon=True).start()
    end = time.monotonic() + PATIENCE
    gave_way = []
    while not done.is_set() and time.monotonic() < end:
        gave_way.append(give_way())
    assert not any(gave_way)
    assert done.is_set()
