"""The bytes that were sent decide whether a batch may be stored: real sockets, TLS and proxies, cut at every stage."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import trustme

from producer import AttemptError, HttpConfig, NetworkError, Producer, ProducerConfig, ProjectConfig
from producer.model.errors import UnreachableError
from producer.model.interfaces import Delivery
from producer.model.records import StreamKey
from producer.runtime.clock import SystemClock
from producer.server import LogHubServer, faults
from producer.sinks.http.attempts import Sent
from producer.sinks.http.failures import error_of_exception
from producer.sinks.loghub.sink import LogHubSink
from tests.support.pipelines import record

from . import hostile_server as hostile
from .hostile_server import Behaviour, serve

KEY = StreamKey("p", "l", "", "")
#: More than the buffers of both sides hold.
LARGE = os.urandom(4_000_000).hex()

WAYS = ["http", "https", "forwarding proxy", "tunnel", "tunnel through a TLS proxy"]


@dataclass
class Tls:
    """The TLS context of a server, and the file of its authority."""

    context: ssl.SSLContext
    bundle: str


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    bundle = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    return Tls(context, str(bundle))


@contextmanager
def sink_for(endpoint: str, tls: Tls, **http: Any) -> Iterator[LogHubSink]:
    """Return a sink with very long timeouts."""
    limits = {"connect_timeout_ms": 20_000, "read_timeout_ms": 20_000, "proxies": {}, "ca_bundle": tls.bundle}
    config = ProducerConfig(compression="none", http=HttpConfig(**(limits | http)))
    sink = LogHubSink(config, SystemClock(), "sent")
    sink.put_project(ProjectConfig("p", endpoint=endpoint, access_key_id="a", access_key_secret="s"))
    try:
        yield sink
    finally:
        sink.close()


def attempt(sink: LogHubSink, text: str = "v") -> AttemptError:
    """Return the error of one attempt."""
    with pytest.raises(AttemptError) as raised:
        sink.write(Delivery(KEY, None, sink.encode(KEY, None, [record(text)])))
    return raised.value


@contextmanager
def sink_on_the_way(way: str, server: Behaviour, tls: Tls, **http: Any) -> Iterator[LogHubSink]:
    """Return a sink that reaches a server with this behaviour directly, or through a working proxy."""
    with ExitStack() as stack:
        if way in ("http", "https"):
            port = stack.enter_context(serve(server, tls.context if way == "https" else None))
            yield stack.enter_context(sink_for(f"{way}://127.0.0.1:{port}", tls, **http))
        elif way == "forwarding proxy":
            proxies = {"http": f"http://127.0.0.1:{stack.enter_context(serve(server))}"}
            yield stack.enter_context(sink_for("http://loghub.invalid", tls, proxies=proxies, **http))
        else:
            over_tls = way == "tunnel through a TLS proxy"
            opening = serve(
                lambda connection, _: hostile.open_tunnel(connection, port), tls.context if over_tls else None
            )
            # The proxy ends last: its tunnel waits for a server that reads no more.
            proxy = f"{'https' if over_tls else 'http'}://127.0.0.1:{stack.enter_context(opening)}"
            port = stack.enter_context(serve(server, tls.context))
            yield stack.enter_context(sink_for(f"https://127.0.0.1:{port}", tls, proxies={"https": proxy}, **http))


def check_in_doubt(error: AttemptError) -> None:
    """Check that the batch may be stored, and that the destination was reached."""
    assert isinstance(error, NetworkError)
    assert not isinstance(error, UnreachableError), error
    assert error.may_have_been_stored, error


def check_incomplete(error: AttemptError) -> None:
    """Check that the destination was reached, and cannot have stored the incomplete request."""
    assert isinstance(error, NetworkError)
    assert not isinstance(error, UnreachableError), error
    assert not error.may_have_been_stored, error


def check_unreachable(error: AttemptError) -> None:
    """Check that nothing was sent, and that the destination counts as unreachable."""
    assert isinstance(error, UnreachableError), error
    assert not error.may_have_been_stored


AFTER_THE_BODY = [
    hostile.take_request_and_reset,
    hostile.take_request_and_close,
    hostile.answer_half,
    hostile.answer_with_two_lengths,
]


@pytest.mark.parametrize("behave", AFTER_THE_BODY, ids=lambda behave: behave.__name__)
@pytest.mark.parametrize("way", WAYS)
def test_a_request_that_left_whole_may_have_been_stored_whatever_ends_the_connection(
    way: str, behave: Behaviour, tls: Tls
) -> None:
    """Directly, within TLS or behind a proxy, a lost response does not make the server unreachable."""
    with sink_on_the_way(way, behave, tls) as sink:
        check_in_doubt(attempt(sink))


@pytest.mark.parametrize("way", ["https", "tunnel", "tunnel through a TLS proxy"])
def test_tls_that_breaks_after_the_request_leaves_it_in_doubt(way: str, tls: Tls) -> None:
    """A TLS error says nothing of the request before it."""
    with sink_on_the_way(way, hostile.break_tls, tls) as sink:
        error = attempt(sink)
    check_in_doubt(error)
    assert "SSL" in error.message


def test_with_tls_1_3_a_server_may_refuse_the_clients_certificate_while_the_request_is_in_flight(tls: Tls) -> None:
    """With TLS 1.3, a server may refuse the client's certificate while the request is in flight."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    authority.issue_cert("127.0.0.1").configure_cert(context)
    context.verify_mode = ssl.CERT_REQUIRED
    with (
        authority.cert_pem.tempfile() as bundle,
        serve(hostile.take_request_and_close, context) as port,
        sink_for(f"https://127.0.0.1:{port}", Tls(context, bundle)) as sink,
    ):
        error = attempt(sink)
    assert isinstance(error, NetworkError)
    assert not isinstance(error, UnreachableError), error


@pytest.mark.parametrize("way", WAYS)
def test_a_request_that_left_in_part_was_reached_and_not_stored(way: str, tls: Tls) -> None:
    """A server that cuts the connection after the first byte of a large body cannot store the batch."""
    with sink_on_the_way(way, hostile.take_one_byte, tls) as sink:
        check_incomplete(attempt(sink, LARGE))


@pytest.mark.parametrize("way", WAYS)
def test_the_limit_of_an_attempt_or_a_socket_after_the_whole_request_leaves_the_batch_unconfirmed(
    way: str, tls: Tls
) -> None:
    """The limit of an attempt or a socket after the whole request leaves the batch unconfirmed; within the request it
    does not.
    """
    for limit in ({"attempt_timeout_ms": 300}, {"read_timeout_ms": 300}):
        with sink_on_the_way(way, hostile.take_request_and_hang, tls, **limit) as sink:
            error = attempt(sink)
        assert error.code == "SocketTimeout"
        check_in_doubt(error)
    with sink_on_the_way(way, hostile.take_one_byte_and_hang, tls, attempt_timeout_ms=300) as sink:
        error = attempt(sink, LARGE)
    assert error.code == "SocketTimeout"
    check_incomplete(error)


@pytest.mark.parametrize("way", WAYS)
def test_a_refused_connection_of_the_server_or_of_its_proxy_sent_nothing(way: str, tls: Tls) -> None:
    """A refused connection, of the server or of its proxy, sent nothing."""
    with serve(hostile.hang) as port:
        pass  # the port is free again
    closed = f"127.0.0.1:{port}"
    if way in ("http", "https"):
        sink = sink_for(f"{way}://{closed}", tls)
    elif way == "forwarding proxy":
        sink = sink_for("http://loghub.invalid", tls, proxies={"http": f"http://{closed}"})
    else:
        scheme = "http" if way == "tunnel" else "https"
        sink = sink_for("https://loghub.invalid", tls, proxies={"https": f"{scheme}://{closed}"})
    with sink as opened:
        check_unreachable(attempt(opened))


BEFORE_THE_HANDSHAKE = [hostile.hear_and_close, hostile.hear_and_reset, hostile.speak_no_tls]


@pytest.mark.parametrize("behave", BEFORE_THE_HANDSHAKE, ids=lambda behave: behave.__name__)
@pytest.mark.parametrize("through", ["nothing", "tunnel"])
def test_without_a_handshake_nothing_was_sent(through: str, behave: Behaviour, tls: Tls) -> None:
    """If the server closes the connection during the handshake, or does not speak TLS, nothing was sent."""
    with ExitStack() as stack:
        port = stack.enter_context(serve(behave))
        proxies = {}
        if through == "tunnel":
            opening = serve(lambda connection, _: hostile.open_tunnel(connection, port))
            proxies = {"https": f"http://127.0.0.1:{stack.enter_context(opening)}"}
        sink = stack.enter_context(sink_for(f"https://127.0.0.1:{port}", tls, proxies=proxies))
        check_unreachable(attempt(sink))


def test_an_error_of_tls_may_have_words_alone() -> None:
    """A TLS error without a code, as pyOpenSSL's, means that nothing was sent; it is retried."""
    error = error_of_exception(ssl.SSLError("bad handshake: certificate verify failed"), Sent.NOTHING)
    check_unreachable(error)
    assert "bad handshake: certificate verify failed" in str(error)


def test_an_untrusted_certificate_is_refused_before_any_log_is_sent(tls: Tls) -> None:
    """An untrusted certificate is refused before any log is sent."""
    with (
        trustme.CA().cert_pem.tempfile() as bundle,
        serve(hostile.hang, tls.context) as port,
        sink_for(f"https://127.0.0.1:{port}", tls, ca_bundle=bundle) as sink,
    ):
        error = attempt(sink)
    check_unreachable(error)
    assert "certificate" in error.message.lower()


@pytest.mark.parametrize(
    "behave",
    [hostile.hear_and_close, hostile.hear_and_reset, hostile.refuse_tunnel, hostile.open_no_tunnel],
    ids=lambda behave: behave.__name__,
)
@pytest.mark.parametrize("over_tls", [False, True], ids=["plain proxy", "TLS proxy"])
def test_a_proxy_that_opens_no_tunnel_got_nothing_of_the_request(behave: Behaviour, over_tls: bool, tls: Tls) -> None:
    """CONNECT is not the request, whatever the proxy answers."""
    with serve(behave, tls.context if over_tls else None) as port:
        proxies = {"https": f"{'https' if over_tls else 'http'}://127.0.0.1:{port}"}
        with sink_for("https://loghub.invalid", tls, proxies=proxies) as sink:
            check_unreachable(attempt(sink))


@pytest.mark.parametrize("limit", ["attempt_timeout_ms", "connect_timeout_ms"])
@pytest.mark.parametrize("stage", ["handshake", "CONNECT"])
def test_a_limit_before_the_request_says_that_nothing_was_sent(stage: str, limit: str, tls: Tls) -> None:
    """A limit during the handshake or CONNECT means that nothing was sent."""
    with serve(hostile.hang) as port:
        proxies = {"https": f"http://127.0.0.1:{port}"} if stage == "CONNECT" else {}
        host = "loghub.invalid" if stage == "CONNECT" else f"127.0.0.1:{port}"
        with sink_for(f"https://{host}", tls, proxies=proxies, **{limit: 300}) as sink:
            check_unreachable(attempt(sink))


def test_on_a_used_or_a_new_connection_the_next_attempt_starts_with_nothing_sent(tls: Tls) -> None:
    """On a used or a new connection, the next attempt starts with nothing sent."""
    with serve(hostile.answer_once) as port, sink_for(f"http://127.0.0.1:{port}", tls, attempt_timeout_ms=500) as sink:
        payload = sink.encode(KEY, None, [record()])
        assert sink.write(Delivery(KEY, None, payload)).http_status == 200
        check_in_doubt(attempt(sink))
    with sink_for(f"http://127.0.0.1:{port}", tls) as sink:
        check_unreachable(attempt(sink))


def answer_more_than_was_asked(connection: socket.socket, stop: threading.Event) -> None:
    """Send a response that ends at the end of a read, with unexpected bytes in the same TLS record."""
    around = b"HTTP/1.1 200 OK\r\nx-log-requestid: own\r\nContent-Length: 0\r\nX: %b\r\n\r\n"
    answer = around % (b"x" * (1 + 8192 - len(around % b"")))
    hostile.read_request(connection)
    connection.sendall(answer[:1])
    connection.sendall(answer[1:] + b"HTTP/1.1 400 Not yours\r\nContent-Length: 0\r\n\r\n")
    hostile.hang(connection, stop)


@pytest.mark.parametrize("way", WAYS)
def test_unexpected_bytes_are_not_the_next_response_even_if_only_tls_still_holds_them(way: str, tls: Tls) -> None:
    """Unexpected bytes are not the next response, even if only TLS still holds them."""
    with sink_on_the_way(way, answer_more_than_was_asked, tls, read_timeout_ms=3000) as sink:
        for _ in range(2):
            assert sink.write(Delivery(KEY, None, sink.encode(KEY, None, [record()]))).http_status == 200


def test_an_answer_lost_behind_a_proxy_neither_fails_an_idempotent_batch_nor_holds_the_project_back() -> None:
    """Behind a proxy, as without one, a stored batch with a lost response counts as delivered, and is stored once."""
    with LogHubServer() as server:
        server.faults.add(faults.drop_answer(), times=1)
        project = ProjectConfig(
            "p",
            endpoint="http://cn-nowhere.invalid",
            access_key_id=server.access_key_id,
            access_key_secret=server.access_key_secret,
        )
        http = HttpConfig(proxies={"http": server.endpoint})
        config = ProducerConfig(linger_ms=100, base_retry_backoff_ms=10, retries=3, http=http)
        with Producer(project, config=config) as producer:
            result = producer.stream("p", "l", idempotent=True).send({"n": 1}).result(60)
        assert result.already_written
        assert result.attempts[0].may_have_been_stored
        assert server.count("p", "l") == 1
