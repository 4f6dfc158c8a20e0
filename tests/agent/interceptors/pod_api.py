"""A small Kubernetes API: list in pages and watch of pods' metadata, over TLS, with faults that a test sets."""

import json
import ssl
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trustme

TOKEN = "a-token"


class PodApi:
    """The pods of one node, and the events since their first version.

    :ivar oldest: the oldest version from which a watch may begin.
    :ivar down: True if every request gets status 503.
    :ivar break_after: events after which each watch breaks; None for never.
    :ivar requests: the query of each request.
    """

    def __init__(self, folder: Path) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.events: list[tuple[int, str]] = []
        self.version, self.oldest, self.down = 100, 0, False
        self.break_after: int | None = None
        self.requests: list[dict[str, str]] = []
        self.changed = threading.Condition()
        self.closing = False
        authority = trustme.CA()
        self.ca, self.token = folder / "ca.crt", folder / "token"
        authority.cert_pem.write_to_path(str(self.ca))
        self.token.write_text(TOKEN + "\n")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def put(self, uid: str, kind: str = "ADDED", **annotations: str) -> None:
        """Add, change or delete a pod, whose only label is its uid."""
        with self.changed:
            self.version += 1
            names = {name.replace("__", "/").replace("_io", ".io"): value for name, value in annotations.items()}
            metadata = {"name": uid, "uid": uid, "labels": {"app": f"of-{uid}"}, "annotations": names or None}
            pod = {"kind": "PartialObjectMetadata", "metadata": {**metadata, "resourceVersion": str(self.version)}}
            self.pods.pop(uid, None)
            if kind != "DELETED":
                self.pods[uid] = pod
            self._add({"type": kind, "object": pod})

    def bookmark(self) -> None:
        with self.changed:
            self.version += 1
            self._add({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}})

    def forget(self) -> None:
        """Forget the events up to the present version; watches that are open end."""
        with self.changed:
            self.version += 1
            self.oldest = self.version
            self._add({"type": "ERROR", "object": {"kind": "Status", "code": 410}})

    def watches(self) -> list[str]:
        return [query["resourceVersion"] for query in self.requests if "watch" in query]

    def lists(self) -> int:
        return sum("watch" not in query and not query.get("continue") for query in self.requests)

    def _add(self, event: dict[str, Any]) -> None:
        self.events.append((self.version, json.dumps(event)))
        self.changed.notify_all()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                api.requests.append(query)
                if self.headers["Authorization"] != f"Bearer {TOKEN}":
                    self._answer(401, {"kind": "Status"})
                elif api.down:
                    self._answer(503, {"kind": "Status"})
                elif url.path != "/api/v1/pods" or query["fieldSelector"] != "spec.nodeName=node-1":
                    self._answer(404, {"kind": "Status"})
                elif query.get("watch") == "true":
                    self._watch(int(query["resourceVersion"]))
                else:
                    self._list(int(query["limit"]), int(query.get("continue") or 0))

            def _list(self, limit: int, start: int) -> None:
                assert "PartialObjectMetadataList" in self.headers["Accept"]
                with api.changed:
                    items, version = list(api.pods.values()), str(api.version)
                more = {"continue": str(start + limit)} if start + limit < len(items) else {}
                page = {"items": items[start : start + limit], "metadata": {"resourceVersion": version, **more}}
                self._answer(200, page)

            def _watch(self, version: int) -> None:
                if version < api.oldest:
                    self._answer(410, {"kind": "Status", "code": 410})
                    return
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.close_connection = True
                sent = 0
                while True:
                    with api.changed:
                        found = [event for event in api.events if event[0] > version]
                        if not found and not api.closing:
                            api.changed.wait(60)
                        if api.closing:
                            return
                    version = found[-1][0]
                    for _, text in found:
                        if sent == api.break_after:
                            self.wfile.write(b"fff\r\n" + text[:10].encode())  # in the middle of a chunk
                            return
                        data = text.encode() + b"\n"
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                        sent += 1

            def _answer(self, status: int, content: object) -> None:
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None: ...

            def finish(self) -> None:
                with suppress(OSError):  # the agent has closed the connection
                    super().finish()

        return Handler
