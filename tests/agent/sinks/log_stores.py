"""Small servers with the bulk API of Elasticsearch and the push API of Loki, which keep what they are sent."""

import gzip
import json
import re
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit


class Request(NamedTuple):
    path: str
    headers: Mapping[str, str]
    body: bytes


class LogStore(ThreadingHTTPServer):
    """Server that keeps requests.

    :ivar answers: statuses and headers for the next requests, which are not carried out.
    :ivar lost: the number of next requests that are carried out, but not answered.
    """

    daemon_threads = True
    paths: tuple[str, ...]

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.requests = list[Request]()
        self.answers: deque[tuple[int, dict[str, str]]] = deque()
        self.lost = 0
        self.down = False
        self.url = f"http{'s' if tls else ''}://localhost:{self.server_address[1]}"

    def carry_out(self, request: Request) -> tuple[int, Any]:
        raise NotImplementedError

    def reply(self, request: Request) -> tuple[int, Mapping[str, str], bytes] | None:
        """Return status, headers and body of the answer; None to close the connection."""
        if self.down:
            return 503, {}, b""
        if self.answers:
            return *self.answers.popleft(), b"a reason"
        if urlsplit(request.path).path not in self.paths:
            return 404, {}, b"no such path"
        status, said = self.carry_out(request)
        if self.lost:
            self.lost -= 1
            return None
        return status, {"Content-Type": "application/json"}, said if isinstance(said, bytes) else _encoded(said)

    def handle_error(self, *_: object) -> None:
        pass


def _encoded(said: Any) -> bytes:
    return json.dumps(said).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        store = self.server
        assert isinstance(store, LogStore)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        store.requests.append(Request(self.path, dict(self.headers), body))
        answer = store.reply(store.requests[-1])
        self.close_connection = answer is None
        if answer is None:
            return
        status, headers, said = answer
        self.send_response(status)
        for name, value in {**headers, **({} if status == 204 else {"Content-Length": str(len(said))})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said if status != 204 else b"")

    def log_message(self, *_: object) -> None:
        pass


class Elasticsearch(LogStore):
    """Store of documents by index and ``_id``.

    :ivar documents: in the order of their creation.
    :ivar judge: returns the status and type of error of a document; None to store it.
    """

    paths = ("/_bulk", "/es/_bulk")

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.documents: dict[tuple[str, str], dict[str, Any]] = {}
        self.judge: Callable[[dict[str, Any]], tuple[int, str] | None] = lambda _document: None

    def stored(self, field: str = "message") -> list[Any]:
        return [document[field] for document in self.documents.values()]

    def carry_out(self, request: Request) -> tuple[int, Any]:
        assert parse_qs(urlsplit(request.path).query)["filter_path"]
        *lines, end = request.body.split(b"\n")
        assert not end
        items = [
            self._create(json.loads(action)["create"], line) for action, line in zip(*[iter(lines)] * 2, strict=True)
        ]
        return 200, {"errors": any("error" in item for item in items), "items": [{"create": item} for item in items]}

    def _create(self, action: dict[str, str], line: bytes) -> dict[str, Any]:
        document = json.loads(line)
        key = action["_index"], action.get("_id") or f"made-{len(self.documents)}"
        failure = self.judge(document)
        if len(key[0].encode()) > 255:
            failure = 400, "invalid_index_name_exception"
        if failure is None and not re.fullmatch(r"(?![-_+.])[^\\/*?\"<>| ,#:A-Z\0-\x1f]+", key[0]):
            failure = 400, "invalid_index_name_exception"
        if failure is None and not all(part.strip() for name in document for part in name.split(".")):
            failure = 400, "document_parsing_exception"
        if failure is None and key in self.documents:
            failure = 409, "version_conflict_engine_exception"
        if failure is not None:
            return {"status": failure[0], "error": {"type": failure[1], "reason": f"because of {document['message']}"}}
        self.documents[key] = document
        return {"status": 201}


class Loki(LogStore):
    """Store of streams, which drops duplicates.

    :ivar entries: labels, time, line and metadata, in order.
    :ivar refuses: returns True for a line that is refused; other entries of the request are stored.
    """

    paths = ("/loki/api/v1/push",)

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[tuple[dict[str, str], int, str, dict[str, str]]] = []
        self.refuses: Callable[[str], bool] = lambda _line: False

    def carry_out(self, request: Request) -> tuple[int, Any]:
        refused = 0
        for stream in json.loads(request.body)["streams"]:
            labels = stream["stream"]
            assert labels, "at least one label is required"
            assert all(re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name) for name in labels)
            for time, line, *metadata in stream["values"]:
                entry = labels, int(time), line, dict(*metadata)
                refused += self.refuses(line)
                if entry not in self.entries and not self.refuses(line):
                    self.entries.append(entry)
        return (400, b"entry too far behind") if refused else (204, b"")


Store = TypeVar("Store", bound=LogStore)


@contextmanager
def running(store: Store) -> Iterator[Store]:
    """Run a server."""
    with store:
        thread = threading.Thread(target=store.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield store
        finally:
            store.shutdown()
            thread.join()
