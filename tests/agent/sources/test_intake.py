"""Failing interceptors: peers that can send again are asked to, and no other peer loses events."""

import socket
from pathlib import Path
from typing import Any

import pytest
import requests

from producer.agent import EventBatch
from producer.agent.events.interfaces import UnfitError
from producer.agent.sources import intake
from tests.agent.components import made
from tests.agent.doubles import file_channel, opened
from tests.agent.sources.listeners import serving
from tests.support.waiting import eventually


def _break(served: Any, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Make the next puts fail, as an interceptor does."""
    left = [times]
    for name in ("put", "put_until"):
        put = getattr(served.outlet, name)

        def failing(*given: Any, put: Any = put, **named: Any) -> Any:
            if left[0]:
                left[0] -= 1
                raise ConnectionError("the service that the interceptor asks is away")
            return put(*given, **named)

        monkeypatch.setattr(served.outlet, name, failing)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("syslog_tcp", b"<13>Oct 11 22:14:15 h app: one\n"),
        ("netcat", b"one\n"),
        ("forward", b"\x93\xa1t\x01\x81\xa1m\xa3one"),
    ],
    ids=["syslog", "netcat", "forward"],
)
def test_without_answers_in_the_protocol_events_are_retried_and_the_connection_stays(
    kind: str, data: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without answers in the protocol the connection stays open and its events are retried, with a log line."""
    monkeypatch.setattr(intake, "_FIRST_PAUSE", 0.001)
    with serving(kind) as served:
        _break(served, monkeypatch, 3)
        with served.connect() as peer:
            peer.sendall(data)
            eventually(lambda: len(served.outlet.bodies) == 1)
            peer.sendall(data)
            eventually(lambda: len(served.outlet.bodies) == 2)
    assert "1 events wait, and their sender with them: ConnectionError: the service" in caplog.text
    assert "events are accepted again" in caplog.text


def test_a_source_that_waits_for_a_failing_interceptor_ends_when_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that waits for a failing interceptor ends when it is stopped."""
    with serving("netcat") as served:
        _break(served, monkeypatch, 1 << 30)
        with served.connect() as peer:
            peer.sendall(b"one\n")
            eventually(lambda: served.source._counters.get("GenericProcessingFail"))


@pytest.mark.parametrize("kind", ["syslog_udp", "netcatudp"])
def test_datagrams_during_a_failure_are_lost_and_counted(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Datagrams during a failure are lost and counted; later datagrams are accepted on the same socket."""
    with serving(kind) as served, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        _break(served, monkeypatch, 1)
        peer.sendto(b"<13>Oct 11 22:14:15 h app: one", served.address)
        eventually(lambda: served.source._intake._counters.get("EventLostCount") == 1)
        peer.sendto(b"<13>Oct 11 22:14:15 h app: two", served.address)
        eventually(lambda: len(served.outlet.bodies) == 1)
    assert "1 events are lost: ConnectionError" in caplog.text


@pytest.mark.parametrize("kind", ["thrift", "avro"])
def test_a_call_is_answered_as_failed_and_delivered_later(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call during a failure is answered with Flume's FAILED, and accepted later on the same connection."""
    with serving(kind) as served, opened(file_channel(tmp_path)):
        _break(served, monkeypatch, 1)
        sink = made("sinks", kind, hostname="127.0.0.1", port=served.address[1])
        batch = EventBatch.of_lines(b"one\n").numbered(1)
        with pytest.raises(Exception, match=r"FAILED|refused|not taken"):
            sink.write([batch])
        sink.write([batch])
        sink.close()
        served.got(b"one")


def test_otlp_gets_503_which_exporters_retry_and_not_500(monkeypatch: pytest.MonkeyPatch) -> None:
    """OTLP gets 503, which exporters retry, and not 500, which they do not."""
    with serving("otlp") as served:
        _break(served, monkeypatch, 1)
        host, port = served.address
        body = b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "one"}}]}]}]}'
        kind = {"Content-Type": "application/json"}
        url = f"http://{host}:{port}/v1/logs"
        answers = [requests.post(url, body, headers=kind, timeout=60) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [503, 200]
    assert "Retry-After" in answers[0].headers
    assert served.outlet.bodies == [b"one"]


@pytest.mark.parametrize("kind", ["http", "otlp"])
def test_a_request_that_no_channel_can_take_is_refused_permanently(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that no channel can take get 400 and not 503, and the connection continues."""
    body = {
        "http": b'[{"headers": {}, "body": "one"}]',
        "otlp": b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "one"}}]}]}]}',
    }[kind]
    with serving(kind) as served, requests.Session() as session:
        monkeypatch.setattr(served.outlet, "put", _never)
        host, port = served.address
        url = f"http://{host}:{port}/v1/logs"
        answers = [session.post(url, body, headers={"Content-Type": "application/json"}, timeout=60) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [400, 400]
    assert "the name of a header" in answers[0].text


def _never(*_given: Any, **_named: Any) -> None:
    raise UnfitError("channel c can never take it: the name of a header has 70000 bytes")


@pytest.mark.parametrize("kind", ["avro", "thrift"])
def test_an_event_of_a_call_that_no_channel_can_take_is_dropped(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call protocols have no permanent refusal, so an unfit event is dropped and the others are accepted."""
    with serving(kind) as served:
        put, refusals = served.outlet.put, list[bool]()

        def noting(*given: Any, refuse: bool = True) -> None:
            refusals.append(refuse)
            put(*given)

        monkeypatch.setattr(served.outlet, "put", noting)
        sink = made("sinks", kind, hostname="127.0.0.1", port=served.address[1])
        sink.write([EventBatch.of_lines(b"one\n").numbered(1)])
        sink.close()
        served.got(b"one")
    assert refusals == [False]
