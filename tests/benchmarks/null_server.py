"""A LogHub that keeps nothing: it reads each request, answers 200, and counts. A process of its own.

``GET /stats`` answers what was counted since the last time; one body is kept, so that a benchmark can decode it.
"""

from __future__ import annotations

import asyncio
import json
import sys

_ANSWER = b"HTTP/1.1 200 OK\r\nx-log-requestid: null\r\nContent-Length: %d\r\n\r\n%s"


class Counts:
    """What came since the last ``GET /stats``."""

    def __init__(self) -> None:
        self.requests = self.raw_bytes = self.body_bytes = 0
        self.sample: dict[str, str] = {}

    def note(self, headers: dict[str, str], body: bytes) -> None:
        """Count one PutLogs."""
        self.requests += 1
        self.raw_bytes += int(headers.get("x-log-bodyrawsize", "0"))
        self.body_bytes += len(body)
        self.sample = {
            "body": body.hex(),
            "compression": headers.get("x-log-compresstype", "none"),
            "raw_size": headers.get("x-log-bodyrawsize", "0"),
        }

    def take(self) -> bytes:
        """The counts as JSON, set back to zero."""
        answer = json.dumps(self.__dict__).encode()
        self.__init__()  # type: ignore[misc]
        return answer


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counts: Counts) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            answer = b""
            if first.startswith("GET /stats"):
                answer = counts.take()
            else:
                counts.note(headers, body)
            writer.write(_ANSWER % (len(answer), answer))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    """Listen on a free port of loopback, print it, and serve until killed."""
    counts = Counts()
    server = await asyncio.start_server(lambda r, w: _serve(r, w, counts), "127.0.0.1", 0, limit=16 * 1024 * 1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
