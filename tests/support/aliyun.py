"""The metadata service of an ECS instance and STS, as one small server of this machine."""

from __future__ import annotations

import base64
import calendar
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from producer.server import LogHubServer
from producer.server.auth import AccessKey
from producer.sinks.loghub.credentials import metadata
from producer.sinks.loghub.credentials.sts import Role

ROLE = "app-role"
ARN = "acs:ram::1:role/app-role"
TOKEN = "metadata-token"
#: A key that may assume the role, and a pod's token.
KEY, SECRET, POD_TOKEN = "LTAI-key", "LTAI-secret", "pod.jwt.token"

Answer = tuple[int, bytes]


class Aliyun(ThreadingHTTPServer):
    """A server that issues the sessions ``STS.1``, ``STS.2``, …

    :ivar asked: method and path of each request, and the action of each request to STS.
    :ivar has_tokens: True if version 2 of the metadata service exists.
    :ivar wants_tokens: True if version 1 does not.
    :ivar life: the life of a session, seconds.
    :ivar clock_offset: seconds that its clock is ahead of this machine's.
    :ivar issued: called with each new session's id, secret and token.
    :ivar instead: gives the answer in place of the true one; None for that.
    :ivar drips: True to send each answer a byte at a time, without end.
    """

    daemon_threads = True
    has_tokens = True
    wants_tokens = True
    life = 3600
    clock_offset = 0.0
    drips = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []
        self.sessions = 0
        self.stopped = threading.Event()
        self.issued: Callable[[str, str, str], None] = lambda *_: None
        self.instead: Callable[[str], Answer | None] = lambda _: None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def accepted_by(self, loghub: LogHubServer) -> None:
        """Make an embedded LogHub accept each session, and end the ones before."""

        def issued(key_id: str, secret: str, token: str) -> None:
            keys = loghub.access_keys
            for earlier in [each for each in keys if each.startswith("STS.")]:
                keys[earlier] = AccessKey(secret="over", security_token="over")
            keys[key_id] = AccessKey(secret=secret, security_token=token)

        self.issued = issued

    def time(self) -> float:
        return time.time() + self.clock_offset

    def session(self) -> dict[str, str]:
        """Issue a session."""
        self.sessions += 1
        number = self.sessions
        self.issued(f"STS.{number}", f"secret-{number}", f"token-{number}")
        return {
            "AccessKeyId": f"STS.{number}",
            "AccessKeySecret": f"secret-{number}",
            "SecurityToken": f"token-{number}",
            "Expiration": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.time() + self.life)),
        }


class _Handler(BaseHTTPRequestHandler):
    server: Aliyun

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = urlsplit(self.path)
        params = dict(parse_qsl(path.query) + parse_qsl(body.decode()))
        name = f"{self.command} {params.get('Action', path.path)}"
        self.server.asked.append(name)
        status, content = self.server.instead(name) or self._answer(name, params)
        self.send_response(status)
        self.send_header("Content-Length", str(10_000_000 if self.server.drips else len(content)))
        self.end_headers()
        while self.server.drips and not self.server.stopped.wait(0.01):
            self.wfile.write(b" ")
        self.wfile.write(content)

    do_PUT = do_POST = do_GET

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(self.server.time() if timestamp is None else timestamp)

    def _answer(self, name: str, params: dict[str, str]) -> Answer:
        server = self.server
        if name == "PUT /latest/api/token":
            return (200, TOKEN.encode()) if server.has_tokens else (404, b"")
        if name.startswith("GET /latest/meta-data"):
            if server.wants_tokens and self.headers.get("X-aliyun-ecs-metadata-token") != TOKEN:
                return 403, b"forbidden"
            role = name.rpartition("/")[2]
            if role:
                return (200, _json(server.session() | {"Code": "Success"})) if role == ROLE else (404, b"")
            return 200, ROLE.encode()
        return self._sts(params)

    def _sts(self, params: dict[str, str]) -> Answer:
        server = self.server
        asked_at = calendar.timegm(time.strptime(params.get("Timestamp", ""), "%Y-%m-%dT%H:%M:%SZ"))
        if abs(asked_at - server.time()) > 900:
            return 400, _json({"Code": "InvalidTimeStamp.Expired", "Message": "no", "RequestId": "A-4"})
        if params.get("Action") == "AssumeRole":
            given = params.pop("Signature", "")
            text = "&".join(f"{_encoded(each)}={_encoded(params[each])}" for each in sorted(params))
            mac = hmac.new((SECRET + "&").encode(), f"POST&%2F&{_encoded(text)}".encode(), hashlib.sha1)
            if params.get("AccessKeyId") != KEY or base64.b64encode(mac.digest()).decode() != given:
                # As STS does: the message has the signed text.
                return 400, _json({"Code": "SignatureDoesNotMatch", "Message": text, "RequestId": "A-1"})
        elif params.get("OIDCToken") != POD_TOKEN:
            return 400, _json({"Code": "AuthenticationFail.OIDCToken.Expired", "Message": "no", "RequestId": "A-2"})
        return 200, _json({"RequestId": "A-3", "Credentials": server.session()})

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _encoded(text: str) -> str:
    return quote(text, safe="~")


def _json(found: Any) -> bytes:
    return json.dumps(found).encode()


@contextmanager
def aliyun(patch: pytest.MonkeyPatch) -> Iterator[Aliyun]:
    """Run the server while the block lasts, in place of the metadata service and STS, with no other credentials."""
    forget_credentials(patch)
    with Aliyun() as server:
        patch.setattr(metadata, "SERVICE", server.url)
        patch.setattr(Role, "endpoint", lambda _: server.url)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.stopped.set()
            server.shutdown()
            thread.join()


def forget_credentials(patch: pytest.MonkeyPatch) -> None:
    """Hide the credentials of the machine."""
    patch.setenv("HOME", "/nonexistent")
    patch.setenv("NO_PROXY", "127.0.0.1")
    for prefix in ("LOGHUB_", "ALIBABA_CLOUD_"):
        for name in ("ACCESS_KEY_ID", "ACCESS_KEY_SECRET", "SECURITY_TOKEN"):
            patch.delenv(prefix + name, raising=False)
    for name in ("PROFILE", "CREDENTIALS_FILE", "ROLE_ARN", "OIDC_PROVIDER_ARN", "OIDC_TOKEN_FILE", "CREDENTIALS_URI"):
        patch.delenv(f"ALIBABA_CLOUD_{name}", raising=False)
