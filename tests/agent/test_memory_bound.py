"""An agent process with ``max_memory_bytes``, whose destination is away while clients send."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ..support.waiting import eventually
from .killing import agent, soon

_MIB = 1 << 20
_LIMIT = 108 * _MIB
#: Clients of each source, requests of a client, and lines of a request; together above the memory limit.
_CLIENTS, _REQUESTS, _LINES = 6, 24, 2048
_LINE = b"%s-%d-%d-%d " + b"x" * 180 + b"\n"
_CONFIG = """
[agent]
state = "{state}"
max_memory_bytes = {limit}
[sources.posts]
type = "http"
format = "lines"
port = {posts}
max_body = "1m"
max_memory = "16m"
put_timeout = 0.05
channels = ["queue"]
[sources.lines]
type = "netcat"
port = {lines}
channels = ["queue"]
[channels.queue]
type = "memory"
byte_capacity = "32m"
[sinks.web]
type = "http"
endpoint = "http://127.0.0.1:{web}/"
channel = "queue"
"""


class _Destination(ThreadingHTTPServer):
    """A server that refuses everything until ``here`` is set, and then keeps the first word of each line."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.here, self.taken = threading.Event(), set[bytes]()


class _Handler(BaseHTTPRequestHandler):
    server: _Destination
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.here.is_set():
            self.server.taken.update(line.partition(b" ")[0] for line in body.splitlines())
        self.send_response(200 if self.server.here.is_set() else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _destination() -> Iterator[_Destination]:
    with _Destination() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def _request(kind: bytes, client: int, number: int) -> list[bytes]:
    return [_LINE % (kind, client, number, line) for line in range(_LINES)]


def _post(port: int, client: int) -> tuple[list[bytes], int]:
    """Send by HTTP. Return the acknowledged lines, and the number of refused requests."""
    acknowledged, refused = list[bytes](), 0
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    for number in range(_REQUESTS):
        lines = _request(b"post", client, number)
        connection.request("POST", "/", b"".join(lines))
        answer = connection.getresponse()
        answer.read()
        assert answer.status in (200, 503)
        acknowledged += lines if answer.status == 200 else []
        refused += answer.status == 503
    connection.close()
    return acknowledged, refused


def _push(port: int, client: int, held_up: threading.Semaphore, over: threading.Event) -> list[bytes]:
    """Send over a connection until the test is over. Return the acknowledged lines, in order."""
    lines, answers = [line for number in range(_REQUESTS) for line in _request(b"line", client, number)], b""
    with socket.create_connection(("127.0.0.1", port), timeout=0.2) as peer:
        for start in range(0, len(lines), 100):
            left = memoryview(b"".join(lines[start : start + 100]))
            while left and not over.is_set():
                try:
                    left = left[peer.send(left) :]
                    answers += peer.recv(_MIB)
                except TimeoutError:
                    held_up.release()
    return lines[: answers.count(b"OK\n")]


def _peak(process: subprocess.Popen[bytes]) -> int:
    """Return the peak resident memory of a process, in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


def _listen(process: subprocess.Popen[bytes], *ports: int) -> bool:
    assert process.poll() is None
    for port in ports:
        with socket.socket() as peer:
            if peer.connect_ex(("127.0.0.1", port)):
                return False
    return True


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the most that a process had is read in /proc")
def test_an_agent_stays_within_its_memory_and_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    """An agent never exceeds its memory limit, and delivers all acknowledged lines once the destination is back.

    Clients send more than the limit. HTTP requests are refused with 503, and other clients are blocked.
    """
    posts, lines = _free_ports(2)
    over, held_up = threading.Event(), threading.Semaphore(0)
    with _destination() as web, ThreadPoolExecutor(2 * _CLIENTS) as clients:
        config = tmp_path / "agent.toml"
        ports = {"posts": posts, "lines": lines, "web": web.server_address[1]}
        config.write_text(_CONFIG.format(state=tmp_path / "state", limit=_LIMIT, **ports))
        with agent(config) as process:
            try:
                soon(lambda: _listen(process, posts, lines), "the sources listen")
                pushed = [clients.submit(_push, lines, client, held_up, over) for client in range(_CLIENTS)]
                posting = [clients.submit(_post, posts, client) for client in range(_CLIENTS)]
                posted = [each.result() for each in posting]
                assert all(held_up.acquire(timeout=60) for _ in range(_CLIENTS))
            finally:
                over.set()
            assert sum(refused for _, refused in posted)
            assert _peak(process) <= _LIMIT
            web.here.set()
            every = [line for each, _ in posted for line in each]
            every += [line for each in pushed for line in each.result()]
            wanted = {line.partition(b" ")[0] for line in every}
            assert len(wanted) > _LINES
            eventually(lambda: wanted <= web.taken or threading.Event().wait(0.05), "what was acknowledged", 60)
            assert _peak(process) <= _LIMIT
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == os.EX_OK
