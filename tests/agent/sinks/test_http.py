"""The sink ``http``."""

import gzip
import json
import socket
import struct
import threading
from base64 import b64encode
from collections import deque
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trustme

from producer.agent import AgentConfigError, EventBatch, RefusedError, SinkError
from producer.agent.events.batch import Position
from producer.agent.events.interfaces import UnfitError
from producer.testing import ManualClock
from tests.agent.components import bodies, lines, made, made_of_flume
from tests.agent.sources.listeners import all_of, serving


class _Server(ThreadingHTTPServer):
    """Server that gives prepared answers, and keeps the requests."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers, self.requests, self.refuses = deque(), [], lambda _body: None
        self.shows = False  # True to repeat the request in error pages
        self.url = f"http://127.0.0.1:{self.server_address[1]}/in?a=b"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), body))
        status, headers = self.server.answers.popleft() if self.server.answers else (200, {})
        status = self.server.refuses(body) or status
        shown = "\r\n".join([self.path, *map(": ".join, self.headers.items())]).encode()
        said = (shown if self.server.shows else b"a reason") if status >= 400 else b""
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(said))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said)

    def date_time_string(self, timestamp=None):  # the server's clock differs from this machine's
        return formatdate(500_000 if timestamp is None else timestamp, usegmt=True)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with _Server() as made_server:
        thread = threading.Thread(target=made_server.serve_forever, args=(0.01,))
        thread.start()
        yield made_server
        made_server.shutdown()
        thread.join()


@pytest.fixture
def sink_for(server, request):
    def make(clock=None, **options):
        sink = made("sinks", "http", clock=clock, **{"endpoint": server.url} | options)
        request.addfinalizer(sink.close)
        return sink

    return make


def test_all_batches_of_a_delivery_are_the_lines_of_one_request_to_the_urls_path_and_query(server, sink_for):
    """All batches of a delivery are the lines of one request, to the URL's path and query."""
    sink_for(headers={"X-Own": "1"}).write([lines("a", "b"), bodies("c")])
    ((path, headers, body),) = server.requests
    assert (path, body, headers["X-Own"]) == ("/in?a=b", b"a\nb\nc\n", "1")


def test_with_json_a_request_is_a_list_of_headers_and_bodies_with_gzip_and_a_token(server, sink_for):
    """With json a request is a list of headers and bodies, with gzip and a token if they are configured."""
    sink_for(format="json", compress=True, token="secret").write([lines("a", "b", h="1")])
    ((_, headers, body),) = server.requests
    assert json.loads(gzip.decompress(body)) == [{"headers": {"h": "1"}, "body": text} for text in "ab"]
    assert (headers["Content-Encoding"], headers["Authorization"]) == ("gzip", "Bearer secret")
    assert headers["Content-Type"] == "application/json"


def test_flumes_sink_sends_event_by_event(server):
    """With a Flume file each event is a request of its own, with the configured content type."""
    options = {"endpoint": server.url, "contentTypeHeader": "text/x", "defaultIncrementMetrics": "true"}
    sink = made_of_flume("sinks", "http", **options)
    sink.write([lines("a", "b")])
    sink.close()
    assert [(headers["Content-Type"], body) for _, headers, body in server.requests] == [
        ("text/x", b"a"),
        ("text/x", b"b"),
    ]


@pytest.mark.parametrize(
    ("status", "rules", "outcome"),
    [
        (200, {}, "taken"),
        (204, {}, "taken"),
        (503, {}, "back"),
        (404, {}, "back"),
        (302, {}, "back"),
        (400, {}, "refused"),
        (400, {"rollback.400": "false"}, "taken"),
        (400, {"rollback.4XX": "true"}, "back"),
        (503, {"rollback.5XX": "false"}, "taken"),
        (503, {"rollback.5XX": "false", "rollback.503": "true"}, "back"),
        (200, {"rollback.2XX": "true"}, "back"),
        (500, {"defaultRollback": "false"}, "taken"),
    ],
)
def test_the_status_decides(server, status, rules, outcome):
    """The most specific rule for a status decides whether events are accepted, returned or refused permanently."""
    sink = made_of_flume("sinks", "http", ManualClock(), endpoint=server.url, format="lines", **rules)
    server.answers.append((status, {}))
    if outcome == "taken":
        sink.write([lines("a")])
    elif outcome == "refused":
        with pytest.raises(RefusedError) as refused:
            sink.write([lines("a")])
        assert [batch.bodies() for batch in refused.value.batches] == [[b"a"]]
    else:
        with pytest.raises(SinkError, match=f"answered {status}"):
            sink.write([lines("a")])
    sink.close()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": formatdate(500_009, usegmt=True)}, 9.0),
        ({"Retry-After": "99999"}, 600.0),
        ({"Retry-After": formatdate(599_999, usegmt=True)}, 600.0),
        ({}, 1.0),
        ({"Retry-After": "x"}, 1.0),
        ({"Retry-After": "Wed, 99999999999999999999 Oct 2026 07:28:00 GMT"}, 1.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 +99999999999999"}, 1.0),
    ],
)
def test_after_a_status_with_backoff_nothing_is_sent_before_retry_after_by_the_servers_clock(
    server, sink_for, headers, seconds
):
    """After a status with backoff nothing is sent before Retry-After, by the server's clock, or for a second."""
    clock = ManualClock(1000.0)
    sink = sink_for(clock)
    server.answers.append((503, headers))
    with pytest.raises(SinkError, match="answered 503"):
        sink.write([lines("a")])
    clock.advance(seconds - 0.1)
    with pytest.raises(SinkError, match="asked for a pause"):
        sink.write([lines("a")])
    assert len(server.requests) == 1
    clock.advance(0.2)
    sink.write([lines("a")])
    assert len(server.requests) == 2


def test_a_redirect_is_not_followed_and_the_error_has_its_target(server, sink_for):
    """A redirect is not followed, and the error has its target, without a query that may contain a secret."""
    sink = sink_for()
    server.answers.append((301, {"Location": "https://far.test/in?key=hidden"}))
    with pytest.raises(
        SinkError, match=r"answered 301, a redirect to 'https://far\.test/in', which is not followed: ''"
    ):
        sink.write([lines("a")])


@pytest.mark.parametrize(
    "options", [{"token": "t0psecret"}, {"user": "me", "password": "t0psecret"}, {"headers": {"X-Key": "t0psecret"}}]
)
@pytest.mark.parametrize("proxy", [False, True])
def test_a_page_that_shows_the_request_tells_no_secret(server, sink_for, options, proxy):
    """An error page that repeats the request is shown without the request's secrets."""
    place = server.url.partition("//")[2].partition("/")[0]
    way = {"proxy": f"http://you:als0secret@{place}"} if proxy else {}
    far = f"http://{'far.test' if proxy else place}/in?key=keysecret"
    sink = sink_for(endpoint=far, **options, **way)
    server.shows = True
    server.answers.append((502, {}))
    with pytest.raises(SinkError, match=r"answered 502: .*/in.*Host: ") as raised:
        sink.write([lines("a")])
    sent = b" ".join(f"{path} {headers}".encode() for path, headers, _ in server.requests)
    assert b"keysecret" in sent
    coded = [b64encode(pair).decode() for pair in (b"me:t0psecret", b"you:als0secret")]
    assert not [secret for secret in ("t0psecret", "als0secret", "keysecret", *coded) if secret in str(raised.value)]


def test_without_backoff_the_next_try_is_at_once(server, sink_for):
    """A status whose backoff is false is retried without a pause."""
    sink = sink_for(ManualClock(), backoff={"503": False})
    server.answers.append((503, {}))
    with pytest.raises(SinkError):
        sink.write([lines("a")])
    sink.write([lines("a")])
    assert len(server.requests) == 2


def test_single_events_that_were_taken_are_not_sent_again(server, sink_for):
    """With one event a request, a retry sends only the events that were not accepted."""
    sink, batch = sink_for(ManualClock(), format="event", default_backoff=False), lines("a", "b", "c").numbered(5)
    server.answers += [(200, {}), (500, {})]
    with pytest.raises(SinkError):
        sink.write([batch])
    sink.write([batch])
    assert [body for _, _, body in server.requests] == [b"a", b"b", b"b", b"c"]


def test_with_one_event_a_request_only_refused_events_are_refused_and_only_these_are_retried(server, sink_for):
    """With one event a request, only refused events are refused, and only these are retried."""
    sink = sink_for(ManualClock(), format="event", default_backoff=False)
    batch, behind = lines("a", "b", "c").numbered(5), lines("d").numbered(6)
    server.answers += [(200, {}), (400, {}), (200, {})]
    with pytest.raises(RefusedError) as refused:
        sink.write([batch, behind])
    assert [each.bodies() for each in refused.value.batches] == [[b"b"]]
    assert refused.value.later == []
    sink.write([batch, behind])
    assert [body for _, _, body in server.requests] == [b"a", b"b", b"c", b"d", b"b"]


def test_after_a_failure_behind_refused_events_only_the_rest_is_sent_so_the_batch_ends(server, sink_for):
    """After a failure behind refused events only the rest is sent, so the batch ends."""
    sink = sink_for(ManualClock(), format="event", default_backoff=False)
    batch = lines("a", "b", "c").numbered(5)
    server.answers += [(400, {}), (400, {}), (500, {})]
    with pytest.raises(SinkError):
        sink.write([batch])
    with pytest.raises(RefusedError) as refused:
        sink.write([batch])
    assert [each.bodies() for each in refused.value.batches] == [[b"a", b"b"]]
    assert [body for _, _, body in server.requests] == [b"a", b"b", b"c", b"c"]


@pytest.mark.parametrize("form", ["lines", "json"])
def test_batches_are_divided_and_merged_within_the_limits_in_order_a_single_event_may_be_larger(server, sink_for, form):
    """Batches are divided and merged within the limits, in order; a single event may be larger."""
    texts = [f"{number:04}" for number in range(95)] + ["x" * 2000, "y"]
    sink = sink_for(format=form, batch_size=10, most_bytes=400)
    sink.write([lines(*texts[:60], h="1"), bodies(*texts[60:70]), lines(*texts[70:])])
    sent = [body for _, _, body in server.requests]
    found = [body.decode().split() if form == "lines" else [e["body"] for e in json.loads(body)] for body in sent]
    assert [text for each in found for text in each] == texts
    assert all(len(each) <= 10 and (len(body) <= 400 or len(each) == 1) for each, body in zip(found, sent, strict=True))
    assert len(found) < (13 if form == "lines" else 25)


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize("form", ["lines", "json"])
def test_only_the_culprit_is_refused(server, sink_for, status, form):
    """A refused request is halved down to the refused events, others are delivered once; the URL's query is hidden."""
    server.refuses = lambda body: status if b"bad" in body else None
    texts = [f"{number:03}" for number in range(500)]
    texts[123] = texts[499] = "bad"
    sink = sink_for(format=form)
    batches = [lines(*texts[:200]).numbered(1), lines(*texts[200:]).numbered(2)]
    with pytest.raises(RefusedError, match=rf"http://127.0.0.1:\d+/in answered {status}: 'a reason'") as refused:
        sink.write(batches)
    assert [each.bodies() for each in refused.value.batches] == [[b"bad"], [b"bad"]]
    taken = b" ".join(body for _, _, body in server.requests if b"bad" not in body)
    assert all(taken.count(text.encode()) == 1 for text in texts if text != "bad")
    assert len(server.requests) < 50
    before = len(server.requests)
    with pytest.raises(RefusedError):  # delivered again, since there are no dead letters
        sink.write(batches)
    assert len(server.requests) == before + 2


def test_a_body_that_is_too_large_for_the_server_is_sent_in_several_requests(server, sink_for):
    """A body that is too large for the server is sent in several requests."""
    server.refuses = lambda body: 413 if len(body) > 10_000 else None
    sink_for(format="json").write([lines(*["z" * 300] * 200)])
    taken = [json.loads(body) for _, _, body in server.requests if len(body) <= 10_000]
    assert sum(map(len, taken)) == 200


def test_after_a_failure_within_a_divided_batch_only_the_rest_is_sent(server, sink_for):
    """After a failure within a divided batch only the rest is sent."""
    sink = sink_for(ManualClock(), batch_size=2, default_backoff=False)
    server.answers += [(200, {}), (500, {})]
    first, second = lines("a", "b").numbered(1), lines("c", "d", "e").numbered(2)
    with pytest.raises(SinkError) as failed:
        sink.write([first, second])
    assert failed.value.later == [second]
    sink.write([second])
    assert [body for _, _, body in server.requests] == [b"a\nb\n", b"c\nd\n", b"c\nd\n", b"e\n"]


def test_a_refused_connection_or_a_missing_answer_is_an_error_with_the_servers_address():
    """A refused connection, or a missing answer, is an error with the server's address."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"http://127.0.0.1:{port}/"
        sink = made("sinks", "http", endpoint=url, request_timeout=0.05, connect_timeout=5)
        with pytest.raises(SinkError, match=f"127.0.0.1:{port}"):
            sink.write([lines("a")])
    with pytest.raises(SinkError):
        sink.write([lines("a")])
    sink.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpoint": "ftp://x/"}, "must be a URL"),
        ({"endpoint": "http://u:hidden@x/"}, "must not contain a password"),
        ({"endpoint": "http://x/", "rollback": {"5xx": True}}, "must name statuses"),
        ({"endpoint": "http://x/", "token": "hidden", "user": "u"}, "must not be given together with user"),
    ],
)
def test_an_invalid_url_or_rule_is_a_configuration_error_that_shows_no_password(options, message):
    """An invalid URL or rule is a configuration error that shows no password."""
    with pytest.raises(AgentConfigError, match=message) as caught:
        made("sinks", "http", **options)
    assert "hidden" not in str(caught.value)


def test_a_server_that_requires_client_certificates_accepts_the_sinks_and_refuses_a_sink_without_one(tmp_path, request):
    """A server that requires client certificates accepts the sink's, and refuses a sink without one."""
    authority = trustme.CA()
    for name in ("localhost", "client"):
        path = tmp_path / f"{name}.pem"
        authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(path)
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    known = str(tmp_path / "authority.pem")
    with serving("http", certificate=str(tmp_path / "localhost.pem"), client_authorities=known) as served:
        asked = {"endpoint": f"https://localhost:{served.address[1]}/", "format": "json", "authorities": known}
        sink = made("sinks", "http", **asked, certificate=str(tmp_path / "client.pem"))
        request.addfinalizer(sink.close)
        sink.write([lines("a")])
        stranger = made("sinks", "http", **asked)
        request.addfinalizer(stranger.close)
        with pytest.raises(SinkError, match="RequestError"):
            stranger.write([lines("b")])
        assert served.outlet.bodies == [b"a"]


@pytest.mark.parametrize("compress", [False, True])
def test_lines_columns_and_bytes_arrive_unchanged_for_events_of_any_size_without_the_position(request, compress):
    """Lines, columns and bytes arrive unchanged, for events of any size, without the position."""
    given = [
        EventBatch.of_lines(b"a\nb\n", {"h": "1"}, Position("p", 2)),
        EventBatch.of_bodies([b"\xff", b"c\nd"], {"~own": "x"}, {"n": ["1", None]}),
        EventBatch.of_bodies([b"x" * (9 << 20)]),
    ]
    with serving("http", format="batches") as served:
        url = f"http://127.0.0.1:{served.address[1]}/"
        sink = made("sinks", "http", endpoint=url, format="batches", compress=compress)
        request.addfinalizer(sink.close)
        sink.write(given)
        assert [list(batch.events()) for batch in served.outlet.batches] == [list(each.events()) for each in given]
        assert [(batch.ends is None, batch.position) for batch in served.outlet.batches] == [
            (True, None),
            (False, None),
            (False, None),
        ]


def test_batches_are_divided_if_they_have_too_many_bytes_or_if_some_of_their_events_are_refused(request):
    """Batches are divided if they have too many bytes, or if some of their events are refused."""
    with serving("http", format="batches") as served:
        url = f"http://127.0.0.1:{served.address[1]}/"
        sink = made("sinks", "http", endpoint=url, format="batches", most_bytes=6)
        request.addfinalizer(sink.close)
        sink.write([lines("abc", "def", "ghi"), lines("j")])
        assert served.outlet.bodies == [b"abc", b"def", b"ghi", b"j"]
        assert len(served.outlet.batches) > 2


def test_a_batch_that_the_other_agent_can_never_take_does_not_go_round(request):
    """A batch that the other agent can never take is refused alone, after few requests, and nothing is lost."""
    with serving("http", format="batches") as served:
        put, asked = served.outlet.put, []

        def put_if_fit(batch, *args, **named):
            asked.append(batch)
            if b"odd" in batch.bodies():
                raise UnfitError("channel c can never take it")
            put(batch, *args, **named)

        served.outlet.put = put_if_fit
        sink = made("sinks", "http", endpoint=f"http://127.0.0.1:{served.address[1]}/", format="batches")
        request.addfinalizer(sink.close)
        with pytest.raises(RefusedError, match="answered 400") as refused:
            sink.write([lines("a").numbered(1), lines("odd").numbered(2), lines("b").numbered(3)])
        assert [each.bodies() for each in refused.value.batches] == [[b"odd"]]
        assert {*served.outlet.bodies} == {b"a", b"b"}
        assert len(asked) < 10


def _frame(headers, body):
    return struct.pack("<II", len(headers), len(body)) + headers + body


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"abc", "incomplete"),
        (_frame(b"{}", b"")[:-1], "incomplete"),
        (_frame(b"[]", b""), "must be texts by name"),
        (_frame(b'{"~count": 1}', b""), "must be texts by name"),
        (_frame(b"{}", b"a"), "lack ~count"),
        (_frame(b'{"~count": "2", "~form": "lines"}', b"a\n"), "does not contain 2 events"),
        (_frame(b'{"~count": "1", "~form": "lines"}', b"a"), "does not contain 1 events"),
        (_frame(b'{"~count": "2"}', struct.pack("<IQQ", 0, 5, 1) + b"a"), "does not contain 2 events"),
        (_frame(b'{"~count": "9999999999999"}', struct.pack("<IQ", 0, 1) + b"a"), "not a batch"),
        (_frame(b"[" * 10_000, b""), "invalid batches"),
    ],
)
def test_invalid_sizes_and_counts_get_400_and_nothing_is_put(body, why):
    """Invalid sizes and counts get 400, and nothing is put."""
    with serving("http", format="batches") as served, served.connect() as peer:
        peer.sendall(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body
        )
        answer = all_of(peer).decode()
        assert answer.startswith("HTTP/1.1 400")
        assert why in answer
        assert not served.outlet.batches
