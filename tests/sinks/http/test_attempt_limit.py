"""An attempt ends at its limit, however slowly the other side sends or reads: real sockets, TLS and proxies."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from producer import HttpConfig, Producer, ProducerConfig, ProjectConfig, Result
from producer.server import LogHubServer, faults
from tests.support.waiting import Call, eventually, passed

from . import hostile_server as hostile
from .hostile_server import Behaviour, serve

#: The limit of an attempt, milliseconds; every other timeout is much longer.
LIMIT = 400
#: The tolerance for a busy machine, milliseconds.
SLACK = 2000


def new_producer(endpoint: str, *, retries: int = 0, http: dict[str, object] | None = None) -> Producer:
    limits = {"connect_timeout_ms": 30_000, "read_timeout_ms": 30_000, "attempt_timeout_ms": LIMIT, "proxies": {}}
    project = ProjectConfig("p", endpoint=endpoint, access_key_id="a", access_key_secret="s")
    config = ProducerConfig(
        name="limited",
        linger_ms=100,
        retries=retries,
        base_retry_backoff_ms=10,
        drain_timeout_ms=0,
        compression="none",
        http=HttpConfig(**(limits | (http or {}))),  # type: ignore[arg-type]
    )
    return Producer(project, config=config)


@contextmanager
def producer_for(endpoint: str, **options: Any) -> Iterator[Producer]:
    """Return a producer that ends even if an attempt does not."""
    producer = new_producer(endpoint, **options)
    try:
        yield producer
    finally:
        producer.close(timeout=5)


def outcome(producer: Producer, value: str = "v") -> Result:
    """Send one log, and wait for its failure."""
    error = producer.send("p", "l", {"k": value}).exception(timeout=15)
    assert error is not None, "nothing of this can be delivered"
    return error.result


def check_cut_at_the_limit(result: Result, *, may_have_been_stored: bool = True) -> None:
    """Check that every attempt ended near its limit, with an error that names it."""
    for attempt in result.attempts:
        assert attempt.error_code == "SocketTimeout", attempt
        assert "0.4 s, the most that an attempt may take (http.attempt_timeout_ms)" in attempt.error_message
        assert LIMIT * 0.95 <= attempt.duration_ms <= LIMIT + SLACK
        assert attempt.may_have_been_stored == may_have_been_stored


BEHAVIOURS = [
    hostile.drip_headers,
    hostile.repeat_continue,
    hostile.drip_body,
    hostile.drip_body_of_unknown_length,
    hostile.read_slowly,
]

# More than the buffers of both sides hold, so that a slow reader keeps the sender waiting.
LARGE = "x" * 7_000_000


@pytest.mark.parametrize("behave", BEHAVIOURS, ids=lambda behave: behave.__name__)
def test_an_attempt_against_a_server_without_end_ends_at_its_limit(behave: Behaviour) -> None:
    """Each byte is well within the socket's timeouts, and the response never ends."""
    with serve(behave) as port, producer_for(f"http://127.0.0.1:{port}", retries=1) as producer:
        result = outcome(producer, LARGE if behave is hostile.read_slowly else "v")
    assert result.attempt_count == 2
    check_cut_at_the_limit(result, may_have_been_stored=behave is not hostile.read_slowly)


def test_the_limit_holds_on_a_connection_that_served_before() -> None:
    """The limit counts from the beginning of the request."""
    with serve(hostile.answer_once) as port, producer_for(f"http://127.0.0.1:{port}") as producer:
        assert producer.send("p", "l", {"k": "v"}).result(timeout=60).successful
        result = outcome(producer)
    check_cut_at_the_limit(result)


def test_the_limit_is_that_of_connecting_and_of_silence_together_unless_given() -> None:
    """150 and 250 milliseconds give the 400 of the other tests; the default is 70 seconds."""
    http = {"connect_timeout_ms": 150, "read_timeout_ms": 250, "attempt_timeout_ms": None}
    with serve(hostile.drip_headers) as port, producer_for(f"http://127.0.0.1:{port}", http=http) as producer:
        check_cut_at_the_limit(outcome(producer))


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, str]:
    """Return the TLS context of a server, and the file of its authority."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    return context, str(bundle)


@pytest.mark.parametrize(
    "behave", [hostile.drip_headers, hostile.drip_record, hostile.read_slowly], ids=lambda behave: behave.__name__
)
def test_the_limit_holds_within_tls(behave: Behaviour, tls: tuple[ssl.SSLContext, str]) -> None:
    """The limit holds for slow TLS records, and for the slow bytes of one record."""
    context, bundle = tls
    with serve(behave, context) as port:
        http = {"ca_bundle": bundle}
        with producer_for(f"https://127.0.0.1:{port}", http=http) as producer:
            result = outcome(producer, LARGE if behave is hostile.read_slowly else "v")
    check_cut_at_the_limit(result, may_have_been_stored=behave is not hostile.read_slowly)


@pytest.mark.parametrize(
    "through", ["forwarding proxy", "tunnel", "tunnel that never opens", "TLS proxy", "TLS within TLS"]
)
def test_the_limit_holds_through_proxies(through: str, tls: tuple[ssl.SSLContext, str]) -> None:
    """The limit holds for a slow proxy, and for a slow server behind it."""
    context, bundle = tls
    scheme, far = "https", "https://loghub.invalid"
    with ExitStack() as stack:
        if through == "forwarding proxy":
            scheme, far = "http", "http://loghub.invalid"
            proxy = f"http://127.0.0.1:{stack.enter_context(serve(hostile.drip_headers))}"
        elif through == "tunnel":
            port = stack.enter_context(serve(hostile.drip_headers, context))
            far = f"https://127.0.0.1:{port}"
            opened = serve(lambda connection, _: hostile.open_tunnel(connection, port))
            proxy = f"http://127.0.0.1:{stack.enter_context(opened)}"
        elif through == "TLS within TLS":
            port = stack.enter_context(serve(hostile.drip_record, context))
            far = f"https://127.0.0.1:{port}"
            opened = serve(lambda connection, _: hostile.open_tunnel(connection, port), context)
            proxy = f"https://127.0.0.1:{stack.enter_context(opened)}"
        elif through == "tunnel that never opens":
            proxy = f"http://127.0.0.1:{stack.enter_context(serve(hostile.drip_tunnel))}"
        else:
            proxy = f"https://127.0.0.1:{stack.enter_context(serve(hostile.drip_tunnel, context))}"
        producer = stack.enter_context(producer_for(far, http={"proxies": {scheme: proxy}, "ca_bundle": bundle}))
        result = outcome(producer)
    check_cut_at_the_limit(result, may_have_been_stored=through in ("forwarding proxy", "tunnel", "TLS within TLS"))


def test_close_and_flush_without_a_timeout_return() -> None:
    """close and flush wait for a hanging attempt and its retry no longer than both limits."""
    with serve(hostile.drip_headers) as port:
        producer = new_producer(f"http://127.0.0.1:{port}", retries=1)
        future = producer.send("p", "l", {"k": "v"})
        Call(producer.flush).result()
        assert future.done()
        producer.send("p", "l", {"k": "v"})
        Call(producer.close).result()
    eventually(lambda: not any(thread.name.startswith("limited-") for thread in threading.enumerate()))


def test_an_attempt_that_close_did_not_wait_for_is_cut_at_its_end_and_its_thread_ends() -> None:
    """An attempt that close did not wait for is cut at its end, and its thread ends."""
    from producer import CloseTimeoutError

    with serve(hostile.repeat_continue) as port:
        producer = new_producer(f"http://127.0.0.1:{port}")
        producer.send("p", "l", {"k": "v"})
        eventually(lambda: producer.stats().batches["sending"] == 1)
        with pytest.raises(CloseTimeoutError):
            producer.close(timeout=0)
        eventually(lambda: not any(thread.name.startswith("limited-") for thread in threading.enumerate()))


def test_connections_are_kept_when_answers_come_in_time() -> None:
    """Several requests share a connection for longer than one limit, without a thread."""
    with LogHubServer() as server:
        project = ProjectConfig(
            "p",
            endpoint=server.endpoint,
            access_key_id=server.access_key_id,
            access_key_secret=server.access_key_secret,
        )
        server.faults.add(faults.delay(0.1))
        config = ProducerConfig(
            name="limited", linger_ms=100, retries=0, http=HttpConfig(attempt_timeout_ms=LIMIT, pool_size=1)
        )
        with Producer(project, config=config) as producer:
            for number in range(6):
                future = producer.send("p", "l", {"n": number})
                producer.flush(timeout=20)
                assert future.result(0).attempt_count == 1
            assert not [thread for thread in threading.enumerate() if thread.name == "limited-deadline"]


_FORKING = """
import os, sys
from producer import HttpConfig, Producer, ProducerConfig, ProjectConfig
project = ProjectConfig("p", endpoint=sys.argv[1], access_key_id="a", access_key_secret="s")
http = HttpConfig(attempt_timeout_ms=1000, proxies={})
producer = Producer(project, config=ProducerConfig(linger_ms=100, retries=0, drain_timeout_ms=0, http=http))
first = producer.send("p", "l", {"k": "v"})
sys.stdin.readline()  # the request has arrived
child = os.fork()
future = producer.send("p", "l", {"k": "v"}) if child == 0 else first
error = future.exception(timeout=15)
producer.close()
if child == 0:
    os._exit(error.result.error_code != "SocketTimeout")
assert error.result.error_code == "SocketTimeout", error
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_the_limit_holds_in_a_forked_child() -> None:
    """After a fork during an attempt, parent and child both cut their attempts at the limit."""
    arrived = threading.Event()

    def drip(connection: socket.socket, stop: threading.Event) -> None:
        connection.recv(1)
        arrived.set()
        hostile.drip_headers(connection, stop)

    with serve(drip) as port:
        command = [sys.executable, "-W", "ignore", "-c", _FORKING, f"http://127.0.0.1:{port}"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            passed(arrived, "the first request")
            _, said = process.communicate("go\n", timeout=40)
    assert process.returncode == 0, said
