"""``close`` ends within its time, whatever the network does: real sockets, TLS, proxies and names."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from producer import FileChannel, HttpConfig, Producer, ProducerConfig, ProjectConfig, SendFuture
from producer.model.errors import CloseTimeoutError
from tests.support.waiting import allowed, eventually

from . import hostile_server as hostile
from .hostile_server import Behaviour, answer, serve

#: The time for ``close``, and the tolerance, seconds.
DRAIN, MORE = 0.6, 1.0
#: The endpoint of a producer, and its HTTP options.
Way = tuple[str, dict[str, Any]]


def to_server(behave: Behaviour) -> Callable[[pytest.MonkeyPatch], AbstractContextManager[Way]]:
    """Return the way to a server without a proxy."""

    @contextmanager
    def way(_: pytest.MonkeyPatch) -> Iterator[Way]:
        with serve(behave) as port:
            yield f"http://127.0.0.1:{port}", {}

    return way


@contextmanager
def handshake_that_hangs(_: pytest.MonkeyPatch) -> Iterator[Way]:
    """Run a server that never begins TLS."""
    with serve(hostile.hang) as port:
        yield f"https://127.0.0.1:{port}", {}


@contextmanager
def proxy_that_hangs(_: pytest.MonkeyPatch) -> Iterator[Way]:
    """Run a proxy that never opens its tunnel."""
    with serve(hostile.drip_tunnel) as port:
        yield "https://loghub.invalid", {"proxies": {"https": f"http://127.0.0.1:{port}"}}


@contextmanager
def connect_that_hangs(_: pytest.MonkeyPatch) -> Iterator[Way]:
    """Run a server whose queue of connections is full: the kernel answers no SYN."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            yield f"http://127.0.0.1:{port}", {}


@contextmanager
def resolver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Way]:
    """Install a resolver that never answers."""
    gate = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: gate.wait(30))
    yield "http://loghub.invalid", {}
    gate.set()


WAYS = {
    "silent": to_server(hostile.hang),
    "dripping": to_server(hostile.drip_headers),
    "slow reader": to_server(hostile.read_slowly),
    "TLS": handshake_that_hangs,
    "proxy": proxy_that_hangs,
    "connect": connect_that_hangs,
    "resolver": resolver_that_hangs,
}


def new_producer(
    endpoint: str, drain_ms: float, http: dict[str, Any], channel: FileChannel | None = None, linger_ms: int = 1
) -> Producer:
    project = ProjectConfig("p", endpoint=endpoint, access_key_id="a", access_key_secret="s")
    options = {"connect_timeout_ms": 30_000, "read_timeout_ms": 30_000, "proxies": {}} | http
    config = ProducerConfig(
        name="ends", linger_ms=linger_ms, drain_timeout_ms=int(drain_ms), http=HttpConfig(**options)
    )
    return Producer(project, config=config, channel=channel)


def in_flight(producer: Producer) -> SendFuture:
    """Send more than the buffers hold, and wait until the attempt has begun."""
    future = producer.send("p", "l", {"k": "v" * 5_000_000})
    eventually(lambda: any(each.in_flight for each in producer.stats().destinations))
    return future


def check_failed(future: SendFuture, code: str = "ProducerClosed") -> None:
    """Check that the record failed at the deadline, and may have been stored."""
    error = future.exception(0)
    assert error is not None
    assert error.result.attempts[-1].error_code == code
    assert error.result.may_have_been_stored


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_the_attempt_is_cut_its_thread_ends_its_batch_fails_and_may_have_been_stored(
    way: Callable[[pytest.MonkeyPatch], AbstractContextManager[Way]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The attempt is cut, its thread ends, its batch fails and may have been stored, and the log has the count."""
    with way(monkeypatch) as (endpoint, http):
        with new_producer(endpoint, DRAIN * 1000, http) as producer:
            future = in_flight(producer)
            began = time.monotonic()
        took = time.monotonic() - began
        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("ends-io")]
    assert DRAIN * 0.9 <= took <= allowed(DRAIN + MORE)
    check_failed(future)
    assert "closed at its deadline: 1 record was not delivered and failed" in caplog.text


def test_close_timeout_and_aclose_raise_with_the_count_and_leave_no_thread() -> None:
    """``close(timeout)`` and aclose raise with the count, and leave no thread."""
    with serve(hostile.hang) as port:
        producer = new_producer(f"http://127.0.0.1:{port}", 60_000, {})
        future, began = in_flight(producer), time.monotonic()
        with pytest.raises(CloseTimeoutError, match=r"not done within 0\.3\d* s; 1 record was failed$"):
            asyncio.run(producer.aclose(0.3))
    assert time.monotonic() - began <= allowed(0.3 + MORE)
    check_failed(future)


def test_at_the_exit_of_the_interpreter_the_closing_thread_makes_the_attempt_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the exit of the interpreter, the closing thread makes the attempt itself, and no thread cuts it."""

    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name.startswith("ends"):
            raise RuntimeError("can't create new thread at interpreter shutdown")
        start(thread)

    with serve(hostile.hang) as port:
        producer = new_producer(f"http://127.0.0.1:{port}", DRAIN * 1000, {}, linger_ms=60_000)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refused)
            future = producer.send("p", "l", {"k": "v"})
            began = time.monotonic()
            producer.close()
        assert time.monotonic() - began <= allowed(DRAIN + MORE)
    error = future.exception(0)
    assert error is not None
    assert error.result.may_have_been_stored


def test_with_a_channel_the_next_producer_delivers_the_record(tmp_path: Path) -> None:
    """With a channel, the next producer delivers the record."""
    with serve(hostile.hang) as port:
        endpoint, channel = f"http://127.0.0.1:{port}", FileChannel(tmp_path)
        with new_producer(endpoint, DRAIN * 1000, {}, channel) as producer:
            future, began = in_flight(producer), time.monotonic()
    assert time.monotonic() - began <= allowed(DRAIN + MORE)
    check_failed(future, "LeftInChannel")
    with serve(answer) as port, new_producer(f"http://127.0.0.1:{port}", 5000, {}, FileChannel(tmp_path)) as producer:
        producer.flush(10)
        assert producer.stats().delivered == 1


def test_close_without_a_timeout_continues_while_acknowledgements_come_within_drain_timeout_ms() -> None:
    """``close`` without a timeout continues while acknowledgements come within ``drain_timeout_ms``."""

    def slow(connection: socket.socket, stop: threading.Event) -> None:
        while hostile.read_request(connection):
            stop.wait(0.2)
            connection.sendall(b"HTTP/1.1 200 OK\r\nx-log-requestid: slow\r\nContent-Length: 0\r\n\r\n")

    with serve(slow) as port:
        project = ProjectConfig("p", endpoint=f"http://127.0.0.1:{port}", access_key_id="a", access_key_secret="s")
        config = ProducerConfig(drain_timeout_ms=500, io_thread_count=1, batch_count_threshold=1)
        with Producer(project, config=config) as producer:
            futures = [producer.send("p", "l", {"n": str(number)}) for number in range(6)]
    assert all(future.exception(0) is None for future in futures)
