"""A server in a process of its own with its memory figures, and raw bytes of a client's requests."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from .client import LOGSTORE, Client

MIB = 1 << 20

PROGRAM = """
import json, sys
from producer.server import Limits, LogHubServer, faults
port, limits, delay, data = json.loads(sys.argv[1])
with LogHubServer(port=port, limits=Limits(**limits), data=data) as server:
    if delay is not None:
        server.faults.add(faults.delay(delay))
    print(server.port, flush=True)
    sys.stdin.read()
"""


@dataclass
class ServerProcess:
    """The embedded server in a process that ends with the block; a fault delays each request by ``delay`` seconds."""

    limits: Mapping[str, Any] | None = None
    delay: float | None = None
    data: Path | None = None
    errors: IO[str] | None = None

    host = "127.0.0.1"
    port = 0
    access_key_id = "test-access-key-id"
    access_key_secret = "test-access-key-secret"

    def __enter__(self) -> Self:
        self._start()
        return self

    def restart(self) -> None:
        """Kill the process and start another one on the same port and the same data."""
        self._end()
        self._start()

    def _start(self) -> None:
        options = [self.port, dict(self.limits or {}), self.delay, str(self.data) if self.data else None]
        command = [sys.executable, "-c", PROGRAM, json.dumps(options)]
        root = Path(__file__).parents[2]
        self.process = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=self.errors, text=True, cwd=root)
        self.port = int(self.process.stdout.readline())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self.process.kill()
        self.process.communicate()

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def resident(self) -> int:
        return _status(self.process.pid, "VmRSS")

    def peak(self) -> int:
        """Return the peak of its memory, bytes."""
        return _status(self.process.pid, "VmHWM")


def _status(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        return int(re.search(rf"^{name}:\s+(\d+) kB$", status.read_text(), re.MULTILINE)[1]) * 1024
    # Without /proc there is no peak; the present size is the next best.
    return int(subprocess.check_output(["ps", "-o", "rss=", "-p", str(pid)])) * 1024


def whole_put(
    client: Client, raw: bytes, *, logstore: str = LOGSTORE, without: tuple[str, ...] = (), **changed: str
) -> bytes:
    """Return the bytes of a valid PutLogs, with headers changed or removed after signing."""
    headers = {"Content-Type": "application/x-protobuf"}
    return request_bytes(client, "POST", f"/logstores/{logstore}/shards/lb", headers, raw, without=without, **changed)


def request_bytes(
    client: Client,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    params: Mapping[str, str] | None = None,
    without: tuple[str, ...] = (),
    **changed: str,
) -> bytes:
    """Return the bytes of a signed request, with headers changed or removed after signing."""
    signed = client.sign(method, path, params or {}, headers or {}, body)
    signed |= {"Content-Length": str(len(body)), **{name.replace("_", "-"): value for name, value in changed.items()}}
    query = "?" + "&".join(f"{name}={value}" for name, value in params.items()) if params else ""
    kept = {name: value for name, value in signed.items() if name not in without}
    lines = [f"{method} {path}{query} HTTP/1.1", *(f"{name}: {value}" for name, value in kept.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
