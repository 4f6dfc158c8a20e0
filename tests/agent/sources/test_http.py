"""The source ``http``."""

import gzip
import json
import socket
import zlib
from base64 import b64encode

import pytest
import requests

from producer.agent import AgentConfigError
from producer.agent.config.options import from_flume, read_options
from producer.agent.config.registry import class_of
from producer.agent.events.batch import EventBatch
from producer.agent.protocols.batches import pack
from producer.wire.zstd import zstd
from tests.agent.components import made
from tests.agent.sources.listeners import all_of, serving


def _post(served, data, **options):
    with requests.Session() as session:
        session.trust_env = False
        return session.post("http://{}:{}/".format(*served.address), data=data, timeout=60, **options)


def _events(*bodies):
    return json.dumps([{"headers": {"a": "b"}, "body": body} for body in bodies])


def _raw(served, sent):
    """Send bytes, close the sending side, and return the answer."""
    with served.connect() as peer:
        peer.sendall(sent)
        peer.shutdown(socket.SHUT_WR)
        return all_of(peer)


def test_flumes_json_is_a_batch():
    """A JSON list of headers and bodies is one batch in order; numbers in headers become text."""
    with serving("http") as served:
        sent = [
            {"headers": {"a": "b", "n": 1, "none": None}, "body": "é"},
            {"body": ""},
            {"headers": None, "body": "x"},
        ]
        assert _post(served, json.dumps(sent)).status_code == 200
        assert served.outlet.events == [({"a": "b", "n": "1"}, "é".encode()), ({}, b""), ({}, b"x")]
        assert len(served.outlet.batches) == 1


@pytest.mark.parametrize("charset", ["utf-8", "utf-16", "utf-32"])
def test_json_in_utf_8_utf_16_and_utf_32_is_detected_by_its_bytes(charset):
    """JSON in UTF-8, UTF-16 and UTF-32 is detected by its bytes."""
    with serving("http") as served:
        assert _post(served, _events("é").encode(charset)).status_code == 200
        served.got("é".encode())


def test_lines_are_events():
    """With format = lines each line is an event; an empty body is an empty batch."""
    with serving("http", format="lines") as served:
        assert _post(served, b'{"a": 1}\n{"b": 2}').status_code == 200
        assert _post(served, b"").status_code == 200
        served.got(b'{"a": 1}', b'{"b": 2}')


def test_a_blob_is_an_event_with_the_parameters_as_headers():
    """With format = blob the body is one event; a missing mandatory parameter is answered with 400."""
    with serving("http", format="blob", mandatory_parameters="a") as served:
        assert _post(served, b"1\n2", params={"a": "x", "b": "y"}).status_code == 200
        assert served.outlet.events == [({"a": "x", "b": "y"}, b"1\n2")]
        assert _post(served, b"1", params={"b": "y"}).status_code == 400
        assert _post(served, b"1", params={"a": ["x", "y"]}).status_code == 200
        assert served.outlet.events[-1] == ({"a": "x", "a_2": "y"}, b"1")


@pytest.mark.parametrize(
    "body",
    ["", "no json", '{"body": "x"}', '["x"]', '[{"body": 1}]', '[{"headers": []}, {"headers": [1]}]', "[" * 100_000],
)
def test_an_invalid_body_gets_a_400_with_the_reason_nothing_is_put_and_the_connection_continues(body):
    """An invalid body gets a 400 with the reason, nothing is put, and the connection continues."""
    with serving("http") as served, requests.Session() as session:
        session.trust_env = False
        url = "http://{}:{}/".format(*served.address)
        answer = session.post(url, data=body or b" ", timeout=60)
        assert (answer.status_code, served.outlet.batches) == (400, [])
        assert answer.text
        assert session.post(url, data=_events("x"), timeout=60).status_code == 200
        assert len({served.source._counters.get("OpenConnectionCount")}) == 1


def test_a_full_channel_is_503_until_there_is_room():
    """While a channel is full the answer is 503 with Retry-After; later the same request is accepted."""
    with serving("http", retry_after=7) as served:
        served.outlet.room.clear()
        answer = _post(served, _events("x"))
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "7")
        served.outlet.room.set()
        assert _post(served, _events("x")).status_code == 200
        served.got(b"x")


def test_packed_bodies_are_unpacked_within_a_bound():
    """gzip bodies are unpacked, also those of several members; a body above the limit gets 413 and is not kept."""
    with serving("http", format="lines", max_body=10_000) as served:
        packed = {"headers": {"Content-Encoding": "gzip"}}
        assert _post(served, gzip.compress(b"a\n") + gzip.compress(b"b\n"), **packed).status_code == 200
        served.got(b"a", b"b")
        assert _post(served, gzip.compress(b"x" * 10_000), **packed).status_code == 200
        assert _post(served, gzip.compress(b"x" * 10_001), **packed).status_code == 413
        assert _post(served, gzip.compress(bytes(50_000_000)), **packed).status_code == 413
        assert _post(served, b"x" * 10_001).status_code == 413
        assert _post(served, iter([b"x" * 6_000, b"y" * 6_000])).status_code == 413
        assert _post(served, gzip.compress(b"whole")[:-4], **packed).status_code == 400
        for kind, pack in (("zstd", zstd.compress), ("deflate", zlib.compress)):
            packed_so = {"headers": {"Content-Encoding": kind}}
            assert _post(served, pack(kind.encode()), **packed_so).status_code == 200
            assert served.outlet.bodies[-1] == kind.encode()
            assert _post(served, pack(bytes(50_000_000)), **packed_so).status_code == 413
            assert _post(served, pack(b"whole")[:-1], **packed_so).status_code == 400
        assert _post(served, b"no gzip", **packed).status_code == 400
        assert _post(served, b"x", headers={"Content-Encoding": "br"}).status_code == 415
        assert len(served.outlet.batches) == 4
        assert served.source._limits.budget.left == 128 << 20


def test_a_request_has_no_more_batches_than_can_be_committed_in_its_time():
    """A small request with 10,001 batches gets 413 and puts none, since each batch is a commit."""
    frame = pack([EventBatch.of_lines(b"\n")])
    with serving("http", format="batches") as served:
        assert _post(served, frame * 10_001).status_code == 413
        assert served.outlet.batches == []
        assert _post(served, frame * 2).status_code == 200


def test_all_requests_together_have_a_bound():
    """Requests beyond the memory budget get 503, and are accepted once memory is free."""
    with serving("http", format="lines", max_memory=1000) as served:
        with served.connect() as first:
            first.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 890\r\n\r\n" + b"x" * 800)
            while served.source._limits.budget.left > 200:
                pass
            assert _post(served, b"y" * 300).status_code == 503
            first.sendall(b"x" * 90)
            assert first.recv(15) == b"HTTP/1.1 200 OK"
        assert _post(served, b"y" * 300).status_code == 200


@pytest.mark.parametrize(
    ("options", "right", "wrong"),
    [
        ({"user": "u", "password": "p"}, "Basic " + b64encode(b"u:p").decode(), "Basic " + b64encode(b"u:q").decode()),
        ({"token": "t"}, "Bearer t", "Bearer T"),
    ],
)
def test_with_a_password_or_token_requests_without_it_get_401_before_their_bodies_are_read(options, right, wrong):
    """With a password or token, requests without it get 401 before their bodies are read."""
    with serving("http", **options) as served:
        assert _post(served, _events("x"), headers={"Authorization": right}).status_code == 200
        assert _post(served, _events("y"), headers={"Authorization": wrong}).status_code == 401
        assert "WWW-Authenticate" in _post(served, _events("y")).headers
        served.got(b"x")


_CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"POST //[ HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n1", 400),
        (b"\x16\x03\x01\x02\x00\x01\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 405),
        (b"TRACE / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 405),
        (b"OPTIONS / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 405),
        (b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (_CHUNKED + b"xyz\r\n", 400),
        (_CHUNKED + b"1\r\nab\r\n", 400),
        (_CHUNKED + b"-1\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\n" + b"a: b\r\n" * 6000 + b"\r\n", 431),
        (b"POST /" + b"x" * 40_000, 431),
        (b"POST / HTTP/1.1\r\nHost: a\r\n" + (b"a: " + b"b" * 10_000 + b"\r\n") * 7, 431),
        (_CHUNKED + b"1;" + b"x" * 40_000, 431),
        (_CHUNKED + b"0\r\n" + (b"t: " + b"v" * 10_000 + b"\r\n") * 7, 431),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Len", 400),
    ],
)
def test_invalid_requests_are_answered_and_end_their_connection(sent, status):
    """Partial, invalid, ambiguous and oversized requests are answered, put nothing, and end their connection."""
    with serving("http", format="lines") as served:
        assert _raw(served, sent).startswith(b"HTTP/1.1 %d " % status)
        assert served.outlet.batches == []


def test_requests_follow_each_other_on_a_connection():
    """Pipelined requests, chunks and 100-continue are served in order; close ends the connection."""
    with serving("http", format="lines") as served:
        answers = _raw(
            served,
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na"
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
            b"1;x=y\r\nb\r\n2\r\nc\n\r\n0\r\nt: v\r\n\r\n"
            b"POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\nd"
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\ne",
        )
        assert answers.count(b"HTTP/1.1 200 OK") == 3
        assert answers.count(b"HTTP/1.1 100 Continue\r\n\r\n") == 1
        served.got(b"a", b"bc", b"d")


def test_a_request_that_is_slower_than_request_timeout_ends_while_other_requests_are_served():
    """A request that is slower than request_timeout ends, while other requests are served."""
    with serving("http", format="lines", request_timeout=1.0) as served, served.connect() as slow:
        slow.sendall(b"POST / HTTP/1.1\r\n")
        assert _post(served, b"x").status_code == 200
        slow.settimeout(0.02)
        answer = None
        while answer is None:
            try:
                slow.sendall(b"a")
                answer = slow.recv(1)
            except TimeoutError:
                continue
            except ConnectionError:
                answer = b""
        assert answer == b""


def test_where_an_interceptor_fails_the_client_is_to_send_again(caplog):
    """A failing interceptor gives 503 with ``Retry-After``; the traceback and the recovery are logged once."""
    with serving("http", format="lines", retry_after=7) as served:
        put = served.outlet.put
        served.outlet.put = lambda *_, **__: 1 / 0
        for _ in range(3):
            answer = _post(served, b"x\ny\n")
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "7")
        served.outlet.put = put
        assert _post(served, b"x").status_code == 200
    assert caplog.text.count("ZeroDivisionError: division by zero") == 2  # the log line, and its traceback
    assert "asked 127.0.0.1 to send 2 events again: ZeroDivisionError" in caplog.text
    assert "source http: events are accepted again" in caplog.text
    assert served.source._counters.get("GenericProcessingFail") == 3


def test_a_bug_of_the_source_is_500_and_ends_only_its_connection(monkeypatch):
    """A bug of the source gives 500 and ends the connection; the next connection is served."""
    with serving("http", format="lines") as served:
        batches = served.source._batches
        monkeypatch.setattr(served.source, "_batches", lambda *_: 1 / 0)
        assert _post(served, b"x").status_code == 500
        monkeypatch.setattr(served.source, "_batches", batches)
        assert _post(served, b"x").status_code == 200


def test_flumes_handlers_are_translated_into_formats_a_users_handler_class_is_refused():
    """Flume's handlers are translated into formats; a user's handler class is refused."""
    options = class_of("sources", "http").Options
    texts = {
        "port": "1",
        "handler": "org.apache.flume.sink.solr.morphline.BlobHandler",
        "handler.mandatoryParameters": "a,b",
    }
    assert from_flume(options, texts) == {"port": "1", "format": "blob", "mandatory_parameters": "a b"}
    assert from_flume(options, {"port": "1"})["format"] == "json"
    with pytest.raises(AgentConfigError, match="must be one of json, lines, blob"):
        made("sources", "http", **from_flume(options, {"port": "1", "handler": "com.example.Mine"}))


def test_two_tiers_with_defaults_fit_each_other():
    """The longest line of ``taildir`` is accepted as JSON, even if each byte is a NUL, which takes six characters."""
    defaults = {name: read_options(class_of("sources", name).Options, given, name) for name, given in _LEAST.items()}
    worst = len(json.dumps("\0")) - 2
    assert worst * defaults["taildir"].max_line_bytes + (1 << 20) < defaults["http"].max_body


_LEAST = {"taildir": {"paths": ["/x/*.log"]}, "http": {"port": 1}}


def test_a_small_compressed_body_that_would_become_millions_of_objects_gets_413():
    """A small compressed body that would become millions of objects gets 413, and the next request is served."""
    with serving("http", max_memory=1 << 20) as served:
        bomb = gzip.compress(b"[" + b"{}," * 100_000 + b"{}]")
        answer = _post(served, bomb, headers={"Content-Encoding": "gzip"})
        assert (answer.status_code, "max_memory" in answer.text) == (413, True)
        assert _post(served, _events("a")).status_code == 200
        served.got(b"a")
