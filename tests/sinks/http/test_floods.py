"""Endless or malicious responses cost neither memory nor time, and do not corrupt the log."""

from __future__ import annotations

import http.client
import socket
import threading

import pytest

from producer import AttemptError, HttpConfig, ProducerConfig, ProjectConfig
from producer.model.interfaces import Delivery, Receipt
from producer.model.records import StreamKey
from producer.reading import signed_client
from producer.reading.errors import LogHubReadError
from producer.reading.signed_client import Question, SignedClient
from producer.runtime.clock import SystemClock
from producer.sinks.http.answers import receive
from producer.sinks.loghub.sink import LogHubSink
from tests.support.pipelines import record

from . import hostile_server as hostile
from .hostile_server import Behaviour, serve

KEY = StreamKey("p", "l", "", "")
_CHUNKED = b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n"
#: The beginning of a response, and its endless rest.
FLOODS = {
    "a chunk of -1 bytes": (_CHUNKED + b"-1\r\n", b"x" * 8000),
    "a chunk of -5 bytes": (_CHUNKED + b"-5\r\n", b"x" * 8000),
    "a trailer": (_CHUNKED + b"0\r\n", b"a: b\r\n" * 1000),
    "interim answers": (b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 300),
}
#: Control characters of a terminal, and line ends.
_EVIL = b"\x1b[2J\x85ERROR root: gone\x00"


class _Flood:
    """A socket with some megabytes to read.

    :ivar left: how many more reads there are.
    """

    def __init__(self, begin: bytes, more: bytes) -> None:
        self._begin, self._more = begin, more
        self.left = 500

    def recv(self, size: int) -> bytes:
        """Return the beginning, then the same bytes forever."""
        data, self._begin = (self._begin or self._more)[:size], b""
        self.left -= 1
        return data if self.left else b""


@pytest.mark.parametrize("flood", FLOODS)
def test_an_answer_that_makes_no_sense_is_not_read_to_its_end(flood: str) -> None:
    """Reading on would fill the memory, or keep a processor busy until the attempt's limit."""
    begin, more = FLOODS[flood]
    flooding = _Flood(begin, more)
    with pytest.raises(http.client.HTTPException):
        receive(flooding, b"HTTP/1.1 102 Processing\r\n\r\n")
    assert flooding.left > 400


def _outcome(answer: bytes) -> AttemptError | Receipt:
    """Return the outcome of an attempt with this response."""

    def answering(connection: socket.socket, _stop: threading.Event) -> None:
        hostile.read_request(connection)
        connection.sendall(answer)

    with serve(answering) as port:
        sink = LogHubSink(ProducerConfig(http=HttpConfig(proxies={})), SystemClock(), "flooded")
        endpoint = f"http://127.0.0.1:{port}"
        sink.put_project(ProjectConfig("p", endpoint=endpoint, access_key_id="a", access_key_secret="s"))
        try:
            return sink.write(Delivery(KEY, None, sink.encode(KEY, None, [record("v")])))
        except AttemptError as error:
            return error
        finally:
            sink.close()


@pytest.mark.parametrize("status", [200, 500])
def test_a_request_id_is_short_and_of_one_line(status: int) -> None:
    """A request id is kept with each attempt, and is part of log lines and errors."""
    head = b"HTTP/1.1 %d X\r\nContent-Length: 0\r\nx-log-requestid: 5f%b\r\n\r\n" % (status, _EVIL + b"e" * 9000)
    request_id = _outcome(head).request_id
    assert request_id.startswith("5f\\x1b[2J\\x85ERROR")
    assert request_id.isprintable()
    assert len(request_id) <= 128


@pytest.mark.parametrize(
    "answer",
    [
        _EVIL * 2000 + b"\r\n\r\n",
        b"HTTP/9 " + b"x" * 60_000 + b"\r\n\r\n",
        b"HTTP/1.1 500 X\r\n" + b"".join(b"Content-Length: %d%b\r\n" % (n, b"0" * 9000) for n in range(7)) + b"\r\n",
    ],
    ids=["no HTTP", "another version", "many lengths"],
)
def test_a_result_lives_as_long_as_its_batch_with_each_of_its_attempts(answer: bytes) -> None:
    """A result lives as long as its batch, with each of its attempts."""
    error = _outcome(answer)
    assert isinstance(error, AttemptError)
    assert len(error.message) < 1200
    assert error.message.isprintable()


def _read_error(behave: Behaviour, **http: object) -> str:
    """Return the error message of a reader that gets this response."""
    with serve(behave) as port:
        endpoint = f"http://127.0.0.1:{port}"
        project = ProjectConfig("p", endpoint=endpoint, access_key_id="a", access_key_secret="s")
        config = ProducerConfig(retries=0, http=HttpConfig(proxies={}, **http))  # type: ignore[arg-type]
        with SignedClient(project, "here", names={"endpoint": "it"}, config=config) as client:
            with pytest.raises(LogHubReadError) as caught:
                client.ask("PullLogs", Question("/logstores/l"), lambda answer, _: answer)
            return str(caught.value)


@pytest.mark.parametrize("behave", [hostile.drip_headers, hostile.drip_body, hostile.repeat_continue])
def test_a_reader_waits_no_longer_than_an_attempt_may_take(behave: Behaviour) -> None:
    """The attempt limit holds even if each byte comes in time."""
    assert "0.3 s, the most that an attempt may take (http.attempt_timeout_ms)" in _read_error(
        behave, attempt_timeout_ms=300
    )


def test_a_reader_takes_no_answer_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless response is refused after its first bytes."""
    monkeypatch.setattr(signed_client, "_MOST_BYTES", 100_000)

    def talk_on(connection: socket.socket, stop: threading.Event) -> None:
        hostile.read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nx-log-requestid: R\r\n\r\n")
        while not stop.is_set():
            connection.sendall(b"x" * 8000)

    assert "an answer of 100000 bytes, or more: ask for less at a time" in _read_error(talk_on)
