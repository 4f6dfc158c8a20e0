"""A client of LogHub for tests, which can replace every part of a request before or after signing."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

import requests

from producer.server import LogHubServer
from producer.wire.compression import compress, decompress
from producer.wire.schema import LogGroup, LogGroupList
from producer.wire.signing import SigningKey, UnsignedRequest, sign_v1, sign_v4

PROJECT = "my-project"
LOGSTORE = "app-log"


def log_group(
    *messages: str | bytes, time: int = 1_700_000_000, topic: str = "", tags: Mapping[str, str] | None = None
) -> bytes:
    """Return an encoded LogGroup with a log for each message, one second apart."""
    group = LogGroup()
    for index, message in enumerate(messages):
        log = group.Logs.add(Time=time + index)
        log.Contents.add(Key="message", Value=message if isinstance(message, bytes) else message.encode())
    if topic:
        group.Topic = topic
    for key, value in (tags or {}).items():
        group.LogTags.add(Key=key, Value=value)
    return bytes(group.SerializeToString())


@dataclass
class Client:
    """A client of ``server`` with one pooled connection."""

    server: LogHubServer
    project: str = PROJECT
    sign_version: int = 1
    access_key_id: str | None = None
    access_key_secret: str | None = None
    security_token: str | None = None
    clock_offset: float = 0.0

    def __post_init__(self) -> None:
        self.session = requests.Session()
        self.session.trust_env = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.session.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, Any] | None = None,
        body: bytes = b"",
        after_signing: Mapping[str, str | None] | None = None,
        timeout: float = 20,
    ) -> requests.Response:
        """Send one signed request; ``after_signing`` replaces headers after signing (None drops one)."""
        signed = self.sign(method, path, params or {}, headers or {}, body)
        for name, value in (after_signing or {}).items():
            signed.pop(name, None)
            if value is not None:
                signed[name] = value
        url = self.server.endpoint + path
        return self.session.request(method, url, params=params, headers=signed, data=body, timeout=timeout)

    def sign(
        self, method: str, path: str, params: Mapping[str, str], headers: Mapping[str, Any], body: bytes
    ) -> dict[str, str]:
        """Return the headers of a signed request, without those that are None."""
        given = {
            "x-log-apiversion": "0.6.0",
            "x-log-bodyrawsize": str(len(body)),
            "Host": f"{self.project}.{self.server.host}:{self.server.port}",
            **headers,
        }
        given = {name: value for name, value in given.items() if value is not None}
        request = UnsignedRequest(method=method, path=path, params=params, headers=given, body=body)
        key = SigningKey(
            access_key_id=self.access_key_id or self.server.access_key_id,
            access_key_secret=self.access_key_secret or self.server.access_key_secret,
            security_token=self.security_token,
            region="cn-hangzhou",
        )
        sign = sign_v1 if self.sign_version == 1 else sign_v4
        return sign(request, key, datetime.now(UTC) + timedelta(seconds=self.clock_offset))

    def put(
        self,
        raw: bytes,
        *,
        logstore: str = LOGSTORE,
        compression: str = "lz4",
        path: str = "/shards/lb",
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> requests.Response:
        given = {"Content-Type": "application/x-protobuf", "x-log-bodyrawsize": str(len(raw))}
        if compression != "none":
            given["x-log-compresstype"] = compression
        body = compress(raw, compression)
        given.update(headers or {})
        return self.request("POST", f"/logstores/{logstore}{path}", params=params, headers=given, body=body, **others)

    def get(
        self, path: str, headers: Mapping[str, str] | None = None, timeout: float = 20, **params: str
    ) -> requests.Response:
        return self.request("GET", path, params=params, headers=headers, timeout=timeout)

    def post_json(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> requests.Response:
        return self.request("POST", path, body=body, headers={"Content-Type": "application/json", **(headers or {})})

    def cursor(self, shard: int, start: str, logstore: str = LOGSTORE) -> str:
        answer = self.get(f"/logstores/{logstore}/shards/{shard}", type="cursor", **{"from": start})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["cursor"])

    def pull(
        self, shard: int, cursor: str, *, encoding: str = "lz4", logstore: str = LOGSTORE, **params: str
    ) -> tuple[list[Any], requests.Response]:
        """Read LogGroups with PullLogs; return them and the answer."""
        answer = self.get(
            f"/logstores/{logstore}/shards/{shard}",
            headers={"Accept-Encoding": encoding},
            **{"type": "log", "cursor": cursor, **params},
        )
        assert answer.status_code == 200, answer.text
        compression = answer.headers.get("x-log-compresstype", "none")
        groups = LogGroupList()
        groups.ParseFromString(decompress(answer.content, compression, int(answer.headers["x-log-bodyrawsize"])))
        return list(groups.LogGroups), answer


def error_of(answer: requests.Response) -> tuple[int, str]:
    """Return status and error code of a refusal in LogHub's JSON form."""
    content = answer.json()
    assert set(content) == {"errorCode", "errorMessage"}
    assert content["errorMessage"]
    assert answer.headers["x-log-requestid"]
    return answer.status_code, content["errorCode"]
