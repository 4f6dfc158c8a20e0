"""Servers of remote files, on this machine: web servers with and without ranges, and an S3 endpoint."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from .waiting import eventually

#: What the S3 endpoint is asked with.
ACCESS_KEY, SECRET_KEY = "test-access-key", "test-secret-access-key"


@contextmanager
def web_server(folder: Path) -> Iterator[str]:
    """The files of a folder, in ranges too, with ETags; its URL."""
    app = Starlette(routes=[Mount("/", StaticFiles(directory=folder))])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started, "the web server")
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _serving(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _WebHdfs(BaseHTTPRequestHandler):
    """Hadoop's WebHDFS, as far as reading goes: a name node that sends on to a data node, which it is itself."""

    files: Mapping[str, bytes]

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = dict(parse_qsl(parts.query))
        path = unquote(parts.path).removeprefix("/webhdfs/v1").removeprefix("/data").rstrip("/")
        data = self.files.get(path)
        below = {name[len(path) + 1 :].partition("/")[0] for name in self.files if name.startswith(f"{path}/")}
        if data is None and not below:
            self._answer(404, {"RemoteException": {"exception": "FileNotFoundException", "message": path}})
        elif parts.path.startswith("/data") and path.endswith(".lost"):
            self._answer(500, {"RemoteException": {"exception": "IOException", "message": "no block"}})
        elif parts.path.startswith("/data"):
            start = int(asked["offset"])
            self._answer(200, (data or b"")[start : start + int(asked["length"])])
        elif asked["op"] == "OPEN":
            place = urlencode({"offset": asked.get("offset", 0), "length": asked.get("length", 1 << 40)})
            self._answer(307, b"", Location=f"http://{self.headers['Host']}/data{quote(path)}?{place}")
        elif asked["op"] == "GETFILESTATUS":
            self._answer(200, {"FileStatus": self._status(path)})
        else:
            statuses = [self._status(f"{path}/{name}") for name in sorted(below)]
            self._answer(200, {"FileStatuses": {"FileStatus": statuses}})

    def _status(self, path: str) -> dict[str, object]:
        data = self.files.get(path)
        kind = "DIRECTORY" if data is None else "FILE"
        length = 0 if data is None else len(data)
        return {
            "pathSuffix": path.rpartition("/")[2],
            "type": kind,
            "length": length,
            "modificationTime": 1_700_000_000,
        }

    def _answer(self, status: int, body: object, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def webhdfs_server(files: Mapping[str, bytes]) -> contextmanager[str]:  # type: ignore[valid-type]
    """A file system with these files, of which the blocks of ``*.lost`` are gone; its URL begins with ``http``."""
    return _serving(type("Handler", (_WebHdfs,), {"files": files}))


def plain_web_server(folder: Path) -> contextmanager[str]:  # type: ignore[valid-type]
    """The files of a folder, each as a whole, and pages of links for directories: what ``python -m http.server`` is."""
    return _serving(partial(_Quiet, directory=str(folder)))


def answering(status: int, headers: dict[str, str], body: bytes = b"") -> contextmanager[str]:  # type: ignore[valid-type]
    """A server that always answers the same."""

    class Handler(_Quiet):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_CONNECT = do_GET  # as a proxy  # noqa: N815

    return _serving(Handler)


@contextmanager
def s3_server() -> Iterator[str]:
    """An S3 endpoint; its URL."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()
