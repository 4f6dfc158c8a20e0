"""Serve remote files from this machine: web servers with and without ranges, and an S3 endpoint."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from urllib.request import Request, urlopen
from xml.sax.saxutils import escape

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from .waiting import eventually

#: The credentials of the S3 endpoint.
ACCESS_KEY, SECRET_KEY = "test-access-key", "test-secret-access-key"
#: The credentials of the OSS endpoint.
OSS_KEY, OSS_SECRET = "test-oss-key", "test-oss-secret"


@contextmanager
def web_server(folder: Path) -> Iterator[str]:
    """Serve the files of a folder, with ranges and ETags; yield the URL."""
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
    """A server of WebHDFS, for reading only: a name node that redirects to a data node, which is the same server."""

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
    """Serve a file system of these files; the blocks of ``*.lost`` are missing. Its URL begins with ``http``."""
    return _serving(type("Handler", (_WebHdfs,), {"files": files}))


class _Oss(BaseHTTPRequestHandler):
    """A server of OSS, for listing and reading one bucket; it checks the key, but no signature."""

    protocol_version = "HTTP/1.1"
    bucket: str
    objects: Mapping[str, bytes]

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        signed, _, signature = self.headers.get("Authorization", "").removeprefix("OSS ").partition(":")
        data = self.objects.get(key)
        if signed != OSS_KEY or not signature:
            self._refuse(403, "InvalidAccessKeyId")
        elif bucket != self.bucket:
            self._refuse(404, "NoSuchBucket")
        elif not key:
            self._answer(200, self._listed(dict(parse_qsl(parts.query, keep_blank_values=True))).encode())
        elif data is None:
            self._refuse(404, "NoSuchKey")
        else:
            self._hand_out(data)

    do_HEAD = do_GET

    def _hand_out(self, data: bytes) -> None:
        told = {"ETag": _etag(data), "Last-Modified": "Fri, 24 Feb 2012 06:07:48 GMT"}
        asked = self.headers.get("Range")
        if asked is None:
            self._answer(200, data, **told)
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        end = min(int(last or len(data)), len(data) - 1)
        told["Content-Range"] = f"bytes {first}-{end}/{len(data)}"
        self._answer(206, data[int(first) : end + 1], **told)

    def _listed(self, asked: dict[str, str]) -> str:
        """Return a page of two entries, so that a client has to request the next one."""
        prefix, ends = asked.get("prefix", ""), asked.get("delimiter", "")
        found: dict[str, str] = {}
        for key, data in sorted(self.objects.items()):
            if not key.startswith(prefix):
                continue
            folder, end, _ = key[len(prefix) :].partition(ends) if ends else (key, "", "")
            if end:
                found[f"{prefix}{folder}{end}"] = (
                    f"<CommonPrefixes><Prefix>{prefix}{folder}{end}</Prefix></CommonPrefixes>"
                )
            else:
                found[key] = (
                    f"<Contents><Key>{key}</Key><LastModified>2012-02-24T08:42:32.000Z</LastModified>"
                    f"<ETag>{escape(_etag(data))}</ETag><Type>Normal</Type><Size>{len(data)}</Size>"
                    "<StorageClass>Standard</StorageClass></Contents>"
                )
        after = asked.get("continuation-token") or asked.get("marker", "")
        left = [key for key in found if key > after]
        page, more = left[:2], len(left) > 2
        token = (
            f"<NextContinuationToken>{page[-1]}</NextContinuationToken><NextMarker>{page[-1]}</NextMarker>"
            if more
            else ""
        )
        return (
            f"<ListBucketResult><Name>{self.bucket}</Name><Prefix>{prefix}</Prefix><MaxKeys>2</MaxKeys>"
            f"<Delimiter>{ends}</Delimiter><IsTruncated>{str(more).lower()}</IsTruncated>{token}"
            f"<KeyCount>{len(page)}</KeyCount>{''.join(found[key] for key in page)}</ListBucketResult>"
        )

    def _refuse(self, status: int, code: str) -> None:
        said = f"<Error><Code>{code}</Code><Message>no</Message><RequestId>1</RequestId></Error>"
        self._answer(status, said.encode())

    def _answer(self, status: int, data: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data)), "x-oss-request-id": "1"}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest().upper()}"'


def oss_server(bucket: str, objects: Mapping[str, bytes]) -> contextmanager[str]:  # type: ignore[valid-type]
    return _serving(type("Handler", (_Oss,), {"bucket": bucket, "objects": objects}))


def plain_web_server(folder: Path) -> contextmanager[str]:  # type: ignore[valid-type]
    """Serve the files of a folder whole, with pages of links for directories, as ``python -m http.server`` does."""
    return _serving(partial(_Quiet, directory=str(folder)))


def answering(
    status: int, headers: dict[str, str], body: bytes = b"", *, wants: str | None = None
) -> contextmanager[str]:  # type: ignore[valid-type]
    """Serve the same response to every request that has the expected ``Authorization``."""

    class Handler(_Quiet):
        def do_GET(self) -> None:
            self.send_response(status if wants in {None, self.headers.get("Authorization")} else 401)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_CONNECT = do_GET

    return _serving(Handler)


@contextmanager
def s3_server() -> Iterator[str]:
    """Run an S3 endpoint without a bucket; yield its URL."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        with urlopen(Request(f"{url}/moto-api/reset", method="POST"), timeout=60):
            pass  # all servers of a process share one state
        yield url
    finally:
        server.stop()
