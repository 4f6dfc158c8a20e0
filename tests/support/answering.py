"""Serve the same response to every request, until the test sets another one."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answering(ThreadingHTTPServer):
    """A server that gives every request the same response.

    :ivar answer: status, error code and message; a response with status 200 has no body.
    :ivar headers: further headers of every response.
    :ivar asked: method and path of each request.
    """

    answer: tuple[int, str, str] = (200, "", "")
    headers: dict[str, str] = {}  # noqa: RUF012  # replaced, never changed
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str]] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Answering

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, self.path))
        status, code, message = self.server.answer
        body = b"" if status == 200 else json.dumps({"errorCode": code, "errorMessage": message}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("x-log-requestid", "R1")
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_CONNECT = do_POST

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def answering(status: int = 200, code: str = "", message: str = "") -> Iterator[Answering]:
    """Run such a server while the block lasts."""
    with Answering() as server:
        server.answer = status, code, message
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
