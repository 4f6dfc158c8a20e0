"""Metric stores: Prometheus remote write, and LogGroups of the official clients."""

import struct
from collections.abc import Sequence

import cramjam
import pytest
import requests

from producer.server import AccessKey, Limits, LogHubServer, faults
from producer.wire.schema import WriteRequest

from ..client import LOGSTORE, PROJECT, Client, error_of, log_group

PATH = f"/prometheus/{PROJECT}/{LOGSTORE}/api/v1/write"
HEADERS = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "User-Agent": "Prometheus/3.5.0",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


def series(name: str, *samples: tuple[int, float], **labels: str) -> dict[str, object]:
    pairs = [*labels.items(), ("__name__", name)] if name else list(labels.items())
    return {
        "labels": [{"name": key.encode(), "value": value.encode()} for key, value in pairs],
        "samples": [{"timestamp": time, "value": value} for time, value in samples],
    }


def write(
    server: LogHubServer,
    *all_series: dict[str, object],
    body: bytes | None = None,
    auth: tuple[str, str] | None = None,
    **headers: str,
) -> requests.Response:
    """Send samples as Prometheus does: to the plain endpoint, with user and password, without LogHub's headers."""
    raw = WriteRequest(timeseries=all_series).SerializeToString() if body is None else body
    key = auth or (server.access_key_id, server.access_key_secret)
    block = bytes(cramjam.snappy.compress_raw(raw))
    return requests.post(server.endpoint + PATH, data=block, headers={**HEADERS, **headers}, auth=key, timeout=60)


def stored(server: LogHubServer) -> list[tuple[int, Sequence[tuple[str, str | bytes]]]]:
    return [(log.time, log.contents) for log in server.logs(PROJECT, LOGSTORE)]


def test_samples_are_kept_as_logs_of_four_fields(server: LogHubServer) -> None:
    """Each sample is stored as a log of its name, sorted labels as one text, nanoseconds, and value."""
    up = series("up", (1_700_000_000_123, 1.0), (1_700_000_015_000, 0.5), job="api", instance="web 1:80")
    assert write(server, up, series("x", (0, float("nan")))).status_code == 200
    labels = "instance#$#web 1:80|job#$#api"
    assert stored(server) == [
        (time, [("__name__", name), ("__labels__", text), ("__time_nano__", nano), ("__value__", value)])
        for time, name, text, nano, value in (
            (1_700_000_000, "up", labels, "1700000000123000000", "1"),
            (1_700_000_015, "up", labels, "1700000015000000000", "0.5"),
            (0, "x", "", "0", "NaN"),
        )
    ]


def test_bytes_of_prometheus_itself_are_read(server: LogHubServer) -> None:
    """Bytes of remote write 1.0 are read; metadata and exemplars are skipped."""
    label = b"\x0a\x0e" + b"\x0a\x08__name__" + b"\x12\x02up"
    sample = b"\x12\x0c" + b"\x09" + struct.pack("<d", -2.5) + b"\x10\xe8\x07"
    exemplar = b"\x1a\x09" + b"\x09" + struct.pack("<d", 1.0)
    one = label + sample + exemplar
    body = b"\x0a" + bytes([len(one)]) + one + b"\x1a\x04\x08\x01\x12\x00"
    assert write(server, body=body).status_code == 200
    ((time, contents),) = stored(server)
    assert (time, dict(contents)["__time_nano__"], dict(contents)["__value__"]) == (1, "1000000000", "-2.5")


def test_a_request_of_metadata_alone_stores_nothing(server: LogHubServer) -> None:
    """A request with metadata only is answered 200, which Prometheus expects, and stores nothing."""
    assert write(server, body=b"\x1a\x04\x08\x01\x12\x00").status_code == 200
    assert server.count(PROJECT, LOGSTORE) == 0


@pytest.mark.parametrize(
    ("one", "status", "code", "words"),
    [
        (series("", (1000, 1.0), job="api"), 400, "PostBodyInvalid", "no label __name__: {'job': 'api'}"),
        (series("up", (-1, 1.0)), 400, "PostBodyInvalid", "a sample of up is at -1 ms"),
        (series("up", (1 << 60, 1.0)), 400, "PostBodyInvalid", "from 0 to 4294967295999 ms"),
        (series("up", (1, 1.0), job="a|b"), 400, "PostBodyInvalid", "replace them by write_relabel_configs"),
        ({**series("up", (1, 1.0)), "histograms": [b""]}, 400, "PostBodyInvalid", "native histograms"),
        ({"labels": [{"name": b"\xff", "value": b""}]}, 400, "InvalidEncoding", "is not UTF-8"),
        (series("up", *[(1, 1.0)] * 60, job="x" * 2000), 413, "PostBodyTooLarge", "65536 are allowed"),
        (series("up", job="x" * 70_000), 413, "PostBodyTooLarge", "65536 are allowed"),
    ],
)
def test_a_request_that_cannot_be_stored_is_refused_whole_and_in_words(
    one: dict[str, object], status: int, code: str, words: str
) -> None:
    """A request that cannot be stored is refused whole and in words, also where few bytes expand to many."""
    with LogHubServer(limits=Limits(raw_bytes=64 * 1024)) as server:
        answer = write(server, series("good", (1000, 1.0)), one)
        assert error_of(answer) == (status, code)
        assert words in answer.json()["errorMessage"]
        assert server.count(PROJECT, LOGSTORE) == 0


@pytest.mark.parametrize(
    ("block", "status", "code", "words"),
    [
        (b"", 400, "PostBodyUncompressError", "not a valid snappy block"),
        (b"\xff\xff\xff\xff\xff\x01", 400, "PostBodyUncompressError", "not a valid snappy block"),
        (b"\x05\x10abc", 400, "PostBodyUncompressError", "not a valid snappy block"),
        (b"\x05\x00a\x01\x05", 400, "PostBodyUncompressError", "not a valid snappy block"),
        (b"\x02\x08abc", 400, "PostBodyUncompressError", "not a valid snappy block"),
        # Refused by its declared size: without the check, memory would be taken, and the block found invalid.
        (b"\xff\xff\xff\xff\x0f\x00a", 413, "PostBodyTooLarge", "4294967295"),
        (bytes(cramjam.snappy.compress_raw(b"\x0a\x05x")), 400, "PostBodyInvalid", "3 bytes is no WriteRequest"),
    ],
)
def test_bodies_that_are_none_are_refused(
    server: LogHubServer, block: bytes, status: int, code: str, words: str
) -> None:
    """Invalid snappy, snappy of too much, and invalid protobuf are refused in words."""
    key = (server.access_key_id, server.access_key_secret)
    answer = requests.post(server.endpoint + PATH, data=block, headers=HEADERS, auth=key, timeout=60)
    assert error_of(answer) == (status, code)
    assert words in answer.json()["errorMessage"]


def test_remote_write_2_is_refused(server: LogHubServer) -> None:
    """Remote write 2.0 is refused, and the answer names the version to use."""
    newer = {"Content-Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request"}
    answer = write(server, series("up", (1, 1.0)), **newer)
    assert error_of(answer) == (400, "InvalidContentType")
    assert "remote write 2.0: use 1.0" in answer.text


def test_user_and_password_are_an_access_key(server: LogHubServer) -> None:
    """Remote write alone takes user and password; a wrong secret or a key with a token is Unauthorized."""
    server.access_keys["STS.x"] = AccessKey(secret="s", security_token="t")
    one = series("up", (1, 1.0))
    for auth in ((server.access_key_id, "wrong"), ("STS.x", "s"), ("nobody", "")):
        assert error_of(write(server, one, auth=auth)) == (401, "Unauthorized")
    key = (server.access_key_id, server.access_key_secret)
    headers = {"Host": f"{PROJECT}.127.0.0.1", "x-log-apiversion": "0.6.0"}
    other = requests.get(server.endpoint + "/logstores", headers=headers, auth=key, timeout=60)
    assert error_of(other) == (401, "MissAccessKeyId")
    assert server.count(PROJECT, LOGSTORE) == 0


def test_faults_meet_remote_write(server: LogHubServer) -> None:
    """Faults and the journal treat remote write as PutLogs of the project in its path."""
    server.faults.add(faults.answer(503, "ServerBusy"), times=1, operation="PutLogs", project=PROJECT)
    answers = [write(server, series("up", (1, 1.0))).status_code for _ in range(2)]
    assert answers == [503, 200]
    assert [(one.operation, one.project, one.status) for one in server.requests] == [
        ("PutLogs", PROJECT, 503),
        ("PutLogs", PROJECT, 200),
    ]


@pytest.mark.parametrize("sign_version", [1, 4])
def test_official_clients_write_log_groups_to_a_metric_store(
    server: LogHubServer, client: Client, sign_version: int
) -> None:
    """PutLogsWithMetricStoreURL (Go) sends a signed, compressed LogGroup to the same path."""
    client.sign_version = sign_version
    raw = log_group("a")
    headers = {"Content-Type": "application/x-protobuf", "x-log-bodyrawsize": str(len(raw))}
    assert client.request("POST", PATH, headers=headers, body=raw).status_code == 200
    assert [log.fields["message"] for log in server.logs(PROJECT, LOGSTORE)] == ["a"]
