"""The benchmark's server counts valid requests and refuses invalid ones."""

import base64
import http.client
from collections.abc import Iterator

import pytest

from tests.support.waiting import Call, eventually

from .null_server import FIRST_KEPT, MOST_KEPT, ONE_OF, Connection, NullLogHub
from .server import null_server, progress, set_mode, take_counts

PATH = "/logstores/bench/shards/lb"
HEADERS = {"x-log-bodyrawsize": "9", "x-log-compresstype": "lz4", "Authorization": "LOG a:b"}


@pytest.fixture(scope="module")
def running() -> Iterator[int]:
    with null_server() as port:
        yield port


@pytest.fixture
def port(running: int) -> int:
    """Return the port of a server whose counts are zero."""
    take_counts(running)
    return running


def post(port: int, headers: dict[str, str], body: bytes = b"body", path: str = PATH) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def test_a_valid_request_is_counted_once_with_its_sizes(port: int) -> None:
    """A valid request is counted once with its raw bytes and body bytes; taking the counts resets them."""
    assert post(port, HEADERS) == 200
    counts = take_counts(port)
    assert [counts[name] for name in ("requests", "raw_bytes", "body_bytes", "bad")] == [1, 9, 4, 0]
    assert take_counts(port)["requests"] == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"x-log-bodyrawsize": None},
        {"x-log-bodyrawsize": "-1"},
        {"x-log-bodyrawsize": "many"},
        {"x-log-compresstype": None},  # then the raw size must be the body's
        {"x-log-compresstype": "lzma"},
        {"Authorization": None},
    ],
    ids=str,
)
def test_wrong_headers_are_refused_and_counted(port: int, wrong: dict[str, str | None]) -> None:
    """Requests without a valid raw size, compression or signature are refused and counted."""
    headers = {name: value for name, value in (HEADERS | wrong).items() if value is not None}
    assert post(port, headers) == 400
    counts = take_counts(port)
    assert counts["bad"] == 1
    assert counts["problem"]
    assert counts["requests"] == 0


def test_requests_to_other_paths_are_accepted_and_counted_separately(port: int) -> None:
    """Requests to other paths, such as an OTLP exporter's, are accepted without our headers and counted separately."""
    assert post(port, {}, path="/v1/logs") == 200
    counts = take_counts(port)
    assert (counts["requests"], counts["others"], counts["other_bytes"]) == (0, 1, 4)


def test_a_request_with_a_whole_url_is_counted(port: int) -> None:
    """A request with a whole URL, as official clients send it to a proxy, is counted."""
    assert post(port, HEADERS, path=f"http://p.null.invalid{PATH}?key=1") == 200
    assert take_counts(port)["requests"] == 1


class Written:
    """A transport that keeps the written bytes."""

    def __init__(self) -> None:
        self.data = b""

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.data += data


@pytest.mark.parametrize("size", [1, 2, 7, 100, 150, 10_000])
def test_requests_are_read_from_pieces_of_any_size(size: int) -> None:
    """Requests are read from pieces of any size, also if the end of one comes with the beginning of the next."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    requests = f"POST {PATH} HTTP/1.1\r\nContent-Length: 4\r\n{lines}\r\nbody".encode() * 4
    hub, written = NullLogHub(), Written()
    connection = Connection(hub)
    connection.connection_made(written)
    for start in range(0, len(requests), size):
        connection.data_received(requests[start : start + size])
    assert written.data.count(b"HTTP/1.1 200 OK\r\n") == 4
    assert (hub.counts.requests, hub.counts.body_bytes) == (4, 16)
    assert [base64.b64decode(sample["body"]) for sample in hub.counts.samples] == [b"body"] * 3


def test_the_sample_contains_the_first_bodies_and_some_others_up_to_a_maximum(port: int) -> None:
    """The sample contains the first bodies and some of the others, up to a maximum."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for _ in range(ONE_OF * MOST_KEPT):
        connection.request("POST", PATH, b"body", HEADERS)
        connection.getresponse().read()
    connection.close()
    assert FIRST_KEPT < len(take_counts(port)["samples"]) <= MOST_KEPT


def test_a_refusing_server_answers_503_and_counts_no_request(port: int) -> None:
    """A refusing server answers 503 and counts no request."""
    set_mode(port, "refuse")
    assert post(port, HEADERS) == 503
    set_mode(port, "ok")
    assert post(port, HEADERS) == 200
    assert take_counts(port)["requests"] == 1


def test_a_stalled_server_answers_and_counts_requests_when_the_mode_changes(port: int) -> None:
    """A stalled server answers and counts requests only when the mode changes; counts and mode can still be called."""
    set_mode(port, "stall")
    call = Call(lambda: post(port, HEADERS))
    eventually(lambda: take_counts(port)["stalled"] == 1)
    assert take_counts(port)["requests"] == 0
    set_mode(port, "ok")
    assert call.result() == 200
    assert take_counts(port)["requests"] == 1


def test_an_unknown_mode_is_refused(port: int) -> None:
    """An unknown mode is refused, so a typo cannot change the measurement."""
    assert post(port, {}, b"", "/mode?stalled") == 400


def test_reading_the_progress_does_not_reset_it(port: int) -> None:
    """Reading the progress does not reset it; taking the counts does."""
    assert [progress(port), post(port, HEADERS), progress(port), progress(port)] == [0, 200, 9, 9]
    assert take_counts(port)["raw_bytes"] == 9
    assert progress(port) == 0


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [("/logstores/bench/shards", 200, b'[{"shardID":0'), ("/logstores/bench", 404, b'{"errorCode"')],
)
def test_every_logstore_has_one_shard_and_other_paths_are_answered_404(
    port: int, path: str, status: int, text: bytes
) -> None:
    """Every logstore has one shard, other paths are answered 404, and no GET is counted as a wrong request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path, headers={"Authorization": "LOG a:b"})
        answer = connection.getresponse()
        assert (answer.status, answer.read()[: len(text)]) == (status, text)
    finally:
        connection.close()
    assert take_counts(port)["bad"] == 0
