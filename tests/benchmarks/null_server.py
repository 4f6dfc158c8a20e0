"""Serve a LogHub that stores nothing: it reads each request, checks its headers, answers 200, and counts.

``GET /stats`` returns the counts since the last such call, with a sample of the bodies, so that a benchmark can decode
them. The server itself decodes no body, and joins only the parts of bodies in the sample. ``GET /progress`` returns the
raw bytes accepted since the last ``GET /stats``, and resets nothing. Every logstore has one shard; a ``GET`` of another
path is answered 404. ``POST /mode?NAME`` chooses how requests are answered: see :class:`Mode`. A POST to another path
than that of PutLogs is answered 200, too, as by an OTLP collector, Loki, or Elasticsearch.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import enum
import json
import sys
from typing import Any
from urllib.parse import urlsplit

_ANSWER = b"HTTP/1.1 %d %s\r\nx-log-requestid: null\r\nContent-Length: %d\r\n\r\n%s"
_REASONS = {200: b"OK", 400: b"Bad Request", 404: b"Not Found", 503: b"Service Unavailable"}
_BUSY = b'{"errorCode":"ServerBusy","errorMessage":"refused by mode"}'
_SHARDS = b'[{"shardID":0,"status":"readwrite"}]'
_NOTHING = b'{"errorCode":"ParameterInvalid","errorMessage":"a null server keeps nothing"}'
_STORED = b'{"errors":false,"items":[]}'
_WRONG = b'{"errorCode":"PostBodyInvalid","errorMessage":"%s"}'
#: The sample: the first bodies, then each n-th one, up to a total size.
FIRST_KEPT, ONE_OF, MOST_KEPT = 3, 50, 10


class Mode(enum.Enum):
    """The answer to requests: 200, none until the mode changes, or 503 ``ServerBusy``."""

    OK = "ok"
    STALL = "stall"
    REFUSE = "refuse"


def problem_of(headers: dict[str, str], length: int) -> str | None:
    """Return the problem with the lower-case headers of a PutLogs whose body has ``length`` bytes, or None."""
    raw_size, compression = headers.get("x-log-bodyrawsize", ""), headers.get("x-log-compresstype", "none")
    if not raw_size.isascii() or not raw_size.isdigit():
        return f"x-log-bodyrawsize is not a number: '{raw_size}'"
    if compression not in ("none", "lz4", "zstd", "deflate"):
        return f"unknown x-log-compresstype: '{compression}'"
    if compression == "none" and int(raw_size) != length:
        return f"x-log-bodyrawsize is {raw_size}, Content-Length {length}, and nothing is compressed"
    if not headers.get("authorization", "").strip():
        return "no Authorization"
    return None


class Counts:
    """Counts since the last ``GET /stats``.

    :ivar requests: accepted PutLogs requests.
    :ivar raw_bytes: bytes of their bodies before compression.
    :ivar body_bytes: bytes of their bodies as sent.
    :ivar bad: requests with wrong headers, answered 400; ``problem`` is that of the last one.
    :ivar others: requests to other paths, and ``other_bytes`` of their bodies.
    :ivar samples: the sample of bodies in base64, with the headers that say how to decode them.
    """

    def __init__(self) -> None:
        self.requests = self.raw_bytes = self.body_bytes = self.bad = self.others = self.other_bytes = 0
        self.problem = ""
        self.samples: list[dict[str, str]] = []

    def wants(self) -> bool:
        """Return whether the next request's body belongs to the sample."""
        number = self.requests + self.others
        return number < FIRST_KEPT or (number % ONE_OF == 0 and len(self.samples) < MOST_KEPT)

    def note(self, is_put: bool, headers: dict[str, str], length: int, body: bytes | None) -> None:
        """Count an accepted request; ``body`` is None if it does not belong to the sample."""
        if is_put:
            self.requests += 1
            self.raw_bytes += int(headers["x-log-bodyrawsize"])
            self.body_bytes += length
        else:
            self.others += 1
            self.other_bytes += length
        if body is not None:
            self.samples.append(
                {
                    "body": base64.b64encode(body).decode(),
                    "compression": headers.get("x-log-compresstype", "none"),
                    "raw_size": headers.get("x-log-bodyrawsize", str(length)),
                    "encoding": headers.get("content-encoding", ""),
                }
            )

    def note_bad(self, problem: str) -> None:
        self.bad += 1
        self.problem = problem


class NullLogHub:
    """The state shared by all connections: the counts, the mode, and the stalled connections."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.mode = Mode.OK
        self._stalled: list[Connection] = []

    def take(self) -> bytes:
        """Return the counts as JSON with the number of requests that wait for an answer, and reset them to zero."""
        counts, self.counts = self.counts, Counts()
        return json.dumps(vars(counts) | {"stalled": len(self._stalled)}).encode()

    def switch(self, mode: Mode) -> None:
        """Change the mode and answer the stalled connections."""
        self.mode = mode
        stalled, self._stalled = self._stalled, []
        for connection in stalled:
            connection.end_request()

    def stall(self, connection: Connection) -> None:
        """Let a connection wait for the next mode."""
        self._stalled.append(connection)


class Connection(asyncio.Protocol):
    """A connection that handles one request after the other; bytes after a request wait for its answer."""

    def __init__(self, hub: NullLogHub) -> None:
        self._hub = hub
        self._head = bytearray()  # the next request's head, and maybe bytes after it
        self._parts: list[bytes] | None = None  # parts of the body, if it belongs to the sample
        self._length = self._missing = 0
        self._in_body = self._waits = False
        self._method = self._path = ""
        self._headers: dict[str, str] = {}

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._in_body and len(data) <= self._missing and not self._waits:
            self._take_body(data)
            if self._missing == 0:
                self.end_request()
        else:
            self._head += data
            self._read_on()

    def _read_on(self) -> None:
        """Handle the bytes in ``_head`` as far as they form whole requests."""
        while not self._waits and self._head:
            if not self._in_body:
                end = self._head.find(b"\r\n\r\n")
                if end < 0:
                    return
                self._begin_request(bytes(self._head[:end]))
                del self._head[: end + 4]
            part = bytes(self._head[: self._missing])
            del self._head[: len(part)]
            self._take_body(part)
            if self._missing > 0:
                return
            self.end_request(further=False)

    def _begin_request(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        self._method, target, _ = first.split(" ", 2)
        parts = urlsplit(target)  # a client whose proxy we are gives the whole URL
        self._path = f"{parts.path}?{parts.query}" if self._method == "POST" and parts.path == "/mode" else parts.path
        self._headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        length = self._headers.get("content-length", "0")
        self._length = self._missing = int(length) if length.isdigit() else 0
        self._in_body = True
        self._parts = [] if self._hub.counts.wants() else None
        if self._headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _take_body(self, part: bytes) -> None:
        self._missing -= len(part)
        if self._parts is not None:
            self._parts.append(part)

    def end_request(self, further: bool = True) -> None:
        """Answer the request that has been read, unless it must wait; then continue with the ``further`` bytes."""
        controls = self._path in ("/stats", "/progress") or self._path.startswith("/mode")
        if self._hub.mode is Mode.STALL and not controls:
            self._waits = True
            self._hub.stall(self)
            return
        self._in_body = self._waits = False
        status, answer = self._control() if controls else self._outcome()
        if not self._transport.is_closing():
            self._transport.write(_ANSWER % (status, _REASONS[status], len(answer), answer))
        if further:
            self._read_on()

    def _control(self) -> tuple[int, bytes]:
        if self._path == "/stats":
            return 200, self._hub.take()
        if self._path == "/progress":
            return 200, b"%d" % self._hub.counts.raw_bytes
        name = self._path.partition("?")[2]
        if name not in [mode.value for mode in Mode]:
            return 400, b"unknown mode"
        self._hub.switch(Mode(name))
        return 200, b""

    def _outcome(self) -> tuple[int, bytes]:
        if self._hub.mode is Mode.REFUSE:
            return 503, _BUSY
        in_logstores = self._path.startswith("/logstores/")
        if self._method == "GET":
            return (200, _SHARDS) if in_logstores and self._path.endswith("/shards") else (404, _NOTHING)
        problem = self._problem(in_logstores)
        if problem is not None:
            self._hub.counts.note_bad(problem)
            return 400, _WRONG % problem.encode()
        body = None if self._parts is None else b"".join(self._parts)
        self._hub.counts.note(in_logstores, self._headers, self._length, body)
        return 200, _STORED if self._path == "/_bulk" else b""

    def _problem(self, is_put: bool) -> str | None:
        length = self._headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()):
            return f"Content-Length is not a number: '{length}'"
        return problem_of(self._headers, self._length) if is_put else None


async def main() -> None:
    """Listen on a free port of loopback, print it, and serve until killed."""
    hub = NullLogHub()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(hub), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(asyncio.run(main()))
