"""The source ``prometheus_remote_write``: OpenTelemetry's exporter, and requests made by hand."""

import math
import socket
import struct
from collections.abc import Iterator
from typing import Any

import cramjam
import pytest
import requests
from opentelemetry.exporter.prometheus_remote_write import PrometheusRemoteWriteMetricsExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from producer.agent.protocols import reckoning
from producer.wire.schema import WriteRequest
from tests.agent.network_conformance import ListeningSourceConformance
from tests.support.waiting import PATIENCE, eventually

from .listeners import Served, serving

HEADERS = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]


def series(*samples: tuple[int, float], **labels: str) -> dict[str, Any]:
    return {
        "labels": [{"name": name.encode(), "value": value.encode()} for name, value in labels.items()],
        "samples": [{"timestamp": time, "value": value} for time, value in samples],
    }


def packed(*all_series: dict[str, Any]) -> bytes:
    return bytes(cramjam.snappy.compress_raw(WriteRequest(timeseries=all_series).SerializeToString()))


def post(address: tuple[str, int], body: bytes, path: str = "/api/v1/write", **headers: str) -> requests.Response:
    url = "http://{}:{}{}".format(*address, path)
    return requests.post(url, body, headers={**HEADERS, **headers}, timeout=PATIENCE)


UP = series((1_700_000_000_123, 1.0), __name__="up", job="api", instance="a:80")


class TestSource(ListeningSourceConformance):
    source = "prometheus_remote_write", {"put_timeout": 0.05, "retry_after": 0}

    def send(self, address: tuple[str, int], number: int, body: bytes) -> None:
        given = packed(series((number, float(number)), __name__="event"))
        eventually(lambda: post(address, given).status_code == 204)

    def feed(self, number: int) -> bytes:
        super().feed(number)
        return b"%d" % number

    def garble(self) -> bool:
        eventually(lambda: self._source is not None and self._source.listening.is_set())
        assert post(self._source.addresses[0], b"garbage").status_code == 400
        return True


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with serving("prometheus_remote_write", max_body=1 << 16, max_memory=1 << 22) as served:
        yield served


@pytest.fixture
def served(shared: Served) -> Served:
    shared.outlet.batches.clear()
    return shared


def test_a_sample_becomes_an_event_in_the_format_of_a_metric_store(served: Served) -> None:
    """A sample becomes an event in the format of a metric store; markers of stale series become NaN."""
    odd = series((1, STALE), (2, math.nan), (3, math.inf), (4, 1e-7), __name__="odd")
    answer = post(served.address, packed(UP, odd))
    assert (answer.status_code, answer.content) == (204, b"")
    up = {"__name__": "up", "__labels__": "instance#$#a:80|job#$#api", "__time_nano__": "1700000000123000000"}
    assert served.outlet.events[0] == (up, b"1")
    assert served.outlet.bodies[1:] == [b"NaN", b"NaN", b"+Inf", b"1e-07"]
    assert served.outlet.events[4][0] == {"__name__": "odd", "__labels__": "", "__time_nano__": "4000000"}


def test_metrics_of_opentelemetry_arrive(served: Served) -> None:
    """Metrics of OpenTelemetry's exporter arrive with their attributes as labels."""
    exporter = PrometheusRemoteWriteMetricsExporter(
        "http://{}:{}/api/v1/write".format(*served.address), resources_as_labels=False
    )
    provider = MeterProvider([PeriodicExportingMetricReader(exporter)], shutdown_on_exit=False)
    provider.get_meter("m").create_counter("orders").add(3, {"shop": "a"})
    provider.force_flush()
    provider.shutdown()
    headers, body = served.outlet.events[0]
    assert (headers["__name__"], headers["__labels__"], body) == ("orders", "shop#$#a", b"3")


def test_series_that_a_metric_store_cannot_store_are_refused_and_the_others_are_stored(served: Served) -> None:
    """Series that a metric store cannot store get 400, which senders do not retry; the others are stored."""
    bad = [
        {**series((1, 1.0), __name__="native"), "histograms": [b""]},
        series((1, 1.0), job="nameless"),
        series((-1, 1.0), __name__="early"),
        {"labels": [{"name": b"__name__", "value": b"\xff"}], "samples": [{"value": 1.0}]},
        {"labels": [{"name": b"__name__", "value": b"a"}] * 2},
        series((1, 1.0), __name__="bar", job="a|b"),
        series((1, 1.0), __name__="two labels in one", job="a#$#b"),
    ]
    answer = post(served.address, packed(*bad, UP))
    assert answer.status_code == 400
    assert "7 time series or samples are refused, the others are stored: native has native histograms" in answer.text
    assert served.outlet.bodies == [b"1"]


@pytest.mark.parametrize(
    ("body", "path", "headers", "status", "words"),
    [
        (packed(), "/api/v1/write", {}, 204, ""),
        (packed(), "/api/v1/write", {"Content-Type": "application/x-protobuf;proto=prometheus.WriteRequest"}, 204, ""),
        (packed(UP), "/other", {}, 404, "events are accepted only at /api/v1/write"),
        (
            packed(UP),
            "/api/v1/write",
            {"Content-Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request"},
            415,
            "only remote write 1.0 is accepted: application/x-protobuf;proto=prometheus.WriteRequest",
        ),
        (packed(UP), "/api/v1/write", {"Content-Type": "application/json"}, 415, "only remote write 1.0"),
        (packed(UP), "/api/v1/write", {"Content-Encoding": "gzip"}, 415, "only Content-Encoding: snappy"),
        (b"", "/api/v1/write", {}, 400, "not a valid snappy block"),
        (b"\x05\x10abc", "/api/v1/write", {}, 400, "not a valid snappy block"),
        (bytes(cramjam.snappy.compress_raw(b"\x0a\x05x")), "/api/v1/write", {}, 400, "invalid WriteRequest"),
        (b"\xff\xff\xff\xff\x0f\x00a", "/api/v1/write", {}, 413, "4294967295 bytes, unpacked: more than 65536"),
        (packed(series(*[(1, 1.0)] * 2000, __name__="x" * 20_000)), "/api/v1/write", {}, 413, "max_memory"),
    ],
)
def test_other_requests_are_refused_with_the_reason(
    served: Served, body: bytes, path: str, headers: dict[str, str], status: int, words: str
) -> None:
    """Other versions, invalid bodies and bombs are refused with the reason; metadata alone is accepted."""
    answer = post(served.address, body, path, **headers)
    assert (answer.status_code, served.outlet.batches) == (status, [])
    assert words in answer.text


def test_a_request_of_too_many_samples_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request with more samples than a message may have is refused with 413."""
    monkeypatch.setattr(reckoning, "MOST_EVENTS", 1)
    answer = post(served.address, packed(series((1, 1.0), (2, 1.0), __name__="a")))
    assert (answer.status_code, served.outlet.batches) == (413, [])


def test_while_a_channel_is_full_prometheus_is_asked_to_send_again(served: Served) -> None:
    """While a channel is full the answer is 503 with Retry-After, after which Prometheus sends again."""
    served.outlet.room.clear()
    try:
        answer = post(served.address, packed(UP))
    finally:
        served.outlet.room.set()
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")


def test_a_request_in_small_pieces_is_read(served: Served) -> None:
    """A request that arrives in pieces, in chunks without a length, is read like any other."""
    head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    with socket.create_connection(served.address, PATIENCE) as peer:
        peer.sendall(f"POST /api/v1/write HTTP/1.1\r\nHost: a\r\n{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        for byte in packed(UP):
            peer.sendall(b"1\r\n%c\r\n" % byte)
        peer.sendall(b"0\r\n\r\n")
        assert peer.recv(100).startswith(b"HTTP/1.1 204")
    assert served.outlet.bodies == [b"1"]
