"""The official clients, unchanged, write to the embedded server and read from it."""

import json
import time

import pytest

from producer.server import AccessKey, LogHubServer
from producer.wire.schema import LogGroup

from .client import LOGSTORE, PROJECT, Client
from .official import official_sdk, official_sdk_outcomes, pull_with_official_sdk, run_program

HERE = {"project": PROJECT, "logstore": LOGSTORE}
LOGS = [{"level": "INFO", "message": "hello"}, {"level": "错误", "message": "größer"}]


@pytest.mark.parametrize("sign_version", ["v1", "v4"])
def test_the_official_sdk_works_through_a_whole_day(sign_version: str) -> None:
    """The official SDK creates a project and logstores, writes compressed, plain and by key, and reads all of it."""
    begin = int(time.time())
    with LogHubServer(auto_create=False) as server:
        results = official_sdk(
            server,
            ("create_project", {"project": PROJECT}),
            ("create_logstore", {**HERE, "shard_count": 3}),
            ("create_logstore", {**HERE, "logstore": "second", "shard_count": 1}),
            ("list_logstores", {"project": PROJECT}),
            ("get_logstore", HERE),
            ("get_project", {"project": PROJECT}),
            ("put", {**HERE, "logs": LOGS, "topic": "web", "tags": {"pod": "p-1"}}),
            ("put", {**HERE, "logs": LOGS[:1], "compress": False}),
            ("put", {**HERE, "logs": LOGS[1:], "hash_key": "f" * 32}),
            ("pull", HERE),
            ("pull", {**HERE, "compress": False, "count": 1}),
            ("pull_since", {**HERE, "shard": 2, "begin": begin - 60, "end": begin + 60}),
            ("get_logs", {**HERE, "begin": 1_700_000_000, "end": 1_700_000_001, "query": "level: INFO"}),
            ("get_logs", {**HERE, "begin": 0, "end": 1_800_000_000, "query": "größer", "reverse": True, "line": 1}),
            ("get_logs_by_get", {**HERE, "begin": 1_700_000_000, "end": 1_700_000_001, "query": "level: INFO"}),
            sign_version=sign_version,
        )
    assert results[3:6] == [[LOGSTORE, "second"], [7, 3], "made by the official SDK"]
    pulled, uncompressed, in_last_shard, found, newest, found_by_get = results[9:]
    assert uncompressed == pulled
    contents = [[["level", log["level"]], ["message", log["message"]]] for log in LOGS]
    first = next(group for group in pulled if group["topic"] == "web")
    assert (first["source"], first["tags"]) == ("10.0.0.1", {"pod": "p-1"})
    assert [(log["time"], log["time_ns"]) for log in first["logs"]] == [(1_700_000_000, 1), (1_700_000_001, 2)]
    assert contents == [log["contents"] for log in first["logs"]]
    assert sum(len(group["logs"]) for group in pulled) == 4
    assert [group["shard"] for group in pulled if group["logs"][0]["contents"] == contents[1]] == [2]
    assert in_last_shard == sum(len(group["logs"]) for group in pulled if group["shard"] == 2)
    assert len(found) == 2
    assert found == found_by_get
    assert [log["message"] for log in newest] == ["größer"]


def test_the_official_sdk_reads_bytes_that_are_not_utf_8(server: LogHubServer, client: Client) -> None:
    """The official SDK reads values of arbitrary bytes as sent."""
    group = LogGroup()
    group.Logs.add(Time=1).Contents.add(Key="raw", Value=b"\xff\x00\xfe")
    assert client.put(group.SerializeToString()).status_code == 200
    (pulled,) = pull_with_official_sdk(server, PROJECT, LOGSTORE)
    assert pulled["logs"][0]["contents"] == [["raw", {"base64": "/wD+"}]]


def test_the_official_sdk_understands_refusals() -> None:
    """The official SDK reports a wrong secret, a wrong token and a missing logstore with status, code and message."""
    put = ("put", {**HERE, "logs": LOGS})
    keys = {"id": "secret", "sts": AccessKey(secret="secret", security_token="token")}
    identities = [
        ("id", "wrong", None, [401, "SignatureNotMatch"]),
        ("nobody", "secret", None, [401, "InvalidAccessKeyId"]),
        ("sts", "secret", "old", [401, "Unauthorized"]),
        ("sts", "secret", "token", [404, "ProjectNotExist"]),
    ]
    with LogHubServer(auto_create=False, access_keys=keys) as server:
        for key_id, secret, token, expected in identities:
            identity = {"access_key_id": key_id, "access_key_secret": secret, "security_token": token}
            (outcome,) = official_sdk_outcomes(server, put, sign_version="v4", **identity)
            assert expected == outcome["error"][:2]


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_the_official_producer_writes_unchanged(server: LogHubServer, compression: str) -> None:
    """The official producer delivers every log exactly once."""
    logs = [{"number": str(number), "text": "日志"} for number in range(500)]
    wanted = {
        "access_key_id": server.access_key_id,
        "access_key_secret": server.access_key_secret,
        "compression": compression,
        "logs": logs,
    }
    outcomes = json.loads(run_program("official_producer.py", server, json.dumps(wanted)))
    assert outcomes == [None] * 500
    stored = server.logs(PROJECT, LOGSTORE)
    assert logs == sorted((log.fields for log in stored), key=lambda fields: int(fields["number"]))
    assert {"rust"} == {log.topic for log in stored}
    assert all(log.pack_id for log in stored)
    assert {compression} == {record.headers["x-log-compresstype"] for record in server.requests}
