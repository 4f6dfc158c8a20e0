"""``/healthz``, ``/metrics`` and the access log."""

import json
import logging

import pytest
import requests

from producer.server import LogHubServer
from producer.server.activity import Activity
from producer.server.journal import RequestRecord

from ..client import PROJECT, Client, log_group


def test_the_server_says_that_it_is_well(server: LogHubServer) -> None:
    """/healthz answers without a signature, and is not recorded as a request."""
    answer = requests.get(f"{server.endpoint}/healthz", timeout=60)
    assert (answer.status_code, answer.text) == (200, "ok\n")
    assert server.requests == []


def test_metrics_count_requests_by_operation_and_status(server: LogHubServer, client: Client) -> None:
    """/metrics has requests, seconds, bytes and logs in Prometheus' text, without names of projects."""
    client.put(log_group("a", "b"))
    client.put(b"no log group")
    client.get("/logstores")
    answer = requests.get(f"{server.endpoint}/metrics", timeout=60)
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert 'loghub_requests_total{operation="PutLogs",status="200"} 1.0' in lines
    assert 'loghub_requests_total{operation="PutLogs",status="400"} 1.0' in lines
    assert 'loghub_request_duration_seconds_count{operation="ListLogstores",status="200"} 1.0' in lines
    assert "loghub_logs_stored_total 2.0" in lines
    assert "loghub_searches_running 0.0" in lines
    assert PROJECT not in answer.text
    names = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert names == {line.split()[2] for line in lines if line.startswith("# HELP")}
    newer = requests.get(f"{server.endpoint}/metrics", headers={"Accept": "application/openmetrics-text"}, timeout=60)
    assert newer.headers["Content-Encoding"] == "gzip"
    assert newer.text.endswith("# EOF\n")


def test_each_request_is_a_line_of_the_access_log(caplog: pytest.LogCaptureFixture) -> None:
    """With access_log each request is one line of JSON, which no client can split."""
    caplog.set_level(logging.INFO, "loghub.server.access")
    with LogHubServer(access_log=True) as server, Client(server) as client:
        client.put(log_group("a", "b"))
        client.get("/logstores/x\ny", headers={"User-Agent": "a\tb"})
    first, second = (json.loads(record.message) for record in caplog.records if record.name.endswith("access"))
    assert (first["operation"], first["status"], first["logs"], first["client"]) == ("PutLogs", 200, 2, "127.0.0.1")
    assert (second["status"], second["path"]) == (400, "/logstores/x\ny")
    assert all("\n" not in record.message for record in caplog.records)


def test_by_default_an_embedded_server_logs_no_requests(caplog: pytest.LogCaptureFixture) -> None:
    """By default an embedded server logs no requests."""
    caplog.set_level(logging.INFO, "loghub.server.access")
    with LogHubServer() as server, Client(server) as client:
        client.put(log_group("a"))
    assert caplog.records == []


def test_clients_that_change_their_name_take_no_memory() -> None:
    """Beyond a thousand clients that write, the least recently seen is forgotten."""
    activity, texts = Activity(), dict.fromkeys(["method", "path", "project", "logstore", "request_id"], "")
    for number in range(1500):
        record = RequestRecord(
            **{"number": number, "when": 0.0, "finished": 0.5, "operation": "PutLogs", "query": {}, **texts},
            headers={"user-agent": f"agent {number}" * 100},
            status=200,
            error_code=None,
            raw_size=1,
            body_size=1,
            logs=2,
        )
        activity.add(record, "10.0.0.1", float(number))
    writers = activity.writers()
    assert (len(writers), writers[0].seen, writers[-1].seen) == (1000, 1499.0, 500.0)
    assert max(len(writer.user_agent) for writer in writers) <= 256
    assert activity.operations()["PutLogs", "200"].logs == 3000
