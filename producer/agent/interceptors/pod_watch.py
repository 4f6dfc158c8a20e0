"""PodWatch: the labels and annotations of a node's pods, by list and watch of the Kubernetes API.

It speaks HTTP itself. The package ``kubernetes`` takes 36 MiB of memory, as much as a small agent, and 20 packages; all
that it would do here is this page. A thread lists the pods, then watches from the list's version. The API may end a
watch at any time: the next one resumes at the last version. If that version is too old (410 Gone), the pods are listed
again. The API sends only metadata, of the pods of one node.

Nothing waits for the API, except once for the first list.
"""

from __future__ import annotations

import json
import random
import socket
import ssl
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from ...runtime.clock import Clock, Latch, Stop
from ...runtime.locks import Lock
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog

_log = get_logger("loghub.agent.source")

_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
#: Pods in one answer of a list.
_PAGE = 100
#: Seconds after which the API ends a watch, and for which an answer may be late.
_WATCH_SECONDS, _TIMEOUT = 240, 30.0
#: Seconds of the pauses after a watch that ended, and at most after failures.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
#: Seconds that a source waits for the end of the thread.
_LONGEST_END = 2.0
#: The uid of a static pod in paths; the API has the uid of its copy.
_STATIC_UID = "kubernetes.io/config.hash"


class Pod(NamedTuple):
    """The metadata of a pod."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Api:
    """The address of an API server.

    :ivar url: ``https://host:port``.
    :ivar token: the file with the token, which the kubelet replaces from time to time.
    :ivar ca: the file with the certificates of the server's authority.
    """

    url: str
    token: Path
    ca: Path


class _GoneError(Exception):
    """Raised when the API does not know a version any more."""


class _RefusedError(HTTPException):
    """Raised for an answer that is not 200."""


class PodWatch:
    """Watcher of the pods of one node, on a thread of its own.

    :param node: the node's name.
    :param most: maximum number of pods that are remembered.
    """

    def __init__(self, api: Api, node: str, most: int, clock: Clock) -> None:
        self._api, self._node, self._most = api, node, most
        self._clock, self._stop, self._repeated = clock, Stop(clock), RateLimitedLog(clock)
        self._lock = Lock()  # guards _pods
        # Pods by uid. Removed pods stay, since their files are read to the end; the oldest entries are dropped.
        self._pods: OrderedDict[str, Pod] = OrderedDict()
        self._version: str | None = None
        self._tried = Latch()
        self._thread = threading.Thread(target=self._live, name="producer-agent-pods", daemon=True)
        self._thread.start()

    def pod(self, uid: str) -> Pod | None:
        """Return a pod; None if it is unknown, as while the API is away."""
        with self._lock:
            return self._pods.get(uid)

    def wait_for_first(self, seconds: float) -> None:
        """Wait until the first list has succeeded or failed, at most some seconds."""
        self._tried.wait(seconds)

    def close(self) -> None:
        """End the thread. It may outlive the call while it connects to a host that does not answer."""
        self._stop.set()
        self._thread.join(_LONGEST_END)

    def _live(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stop.is_set():
            try:
                self._list_and_watch()
                pause = _FIRST_PAUSE
            except Exception as error:  # noqa: BLE001  # an answer of any form ends no thread
                self._log_failure(error)
                pause = min(2 * pause, _LONGEST_PAUSE)
            self._tried.set()
            self._stop.wait(pause * random.uniform(0.5, 1))  # noqa: S311  # nodes ask apart

    def _list_and_watch(self) -> None:
        """List the pods unless a version is known, and read the events of one watch."""
        try:
            if self._version is None:
                self._list()
                self._tried.set()
                if self._repeated.recovered():
                    _log.info("the Kubernetes API of %s answers again", self._api.url)
            self._watch()
        except _GoneError:
            self._version = None

    def _log_failure(self, error: Exception) -> None:
        more = None if self._stop.is_set() else self._repeated.due_error(error)
        if more is not None:
            _log.warning(
                "pods of node %s: the Kubernetes API of %s failed; lines get no labels of new pods: %s: %s%s",
                *(self._node, self._api.url, type(error).__name__, error, more),
            )

    def _list(self) -> None:
        more: str | None = ""
        while more is not None:
            with self._get("List", {"limit": str(_PAGE), "continue": more}) as answer:
                page = json.loads(answer.read())
            for item in page["items"]:
                self._add(item["metadata"])
            more = page["metadata"].get("continue") or None
        self._version = page["metadata"]["resourceVersion"]

    def _watch(self) -> None:
        """Read events until the API ends the watch."""
        version = str(self._version)
        asked = {
            "resourceVersion": version,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        with self._get("", asked, _WATCH_SECONDS) as answer:
            for line in answer:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise _GoneError if event["object"].get("code") == HTTPStatus.GONE else _RefusedError(str(event))
                metadata = event["object"]["metadata"]
                if event["type"] != "BOOKMARK":
                    self._add(metadata)
                self._version = metadata["resourceVersion"]

    def _add(self, metadata: Mapping[str, Any]) -> None:
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        uid = annotations.get(_STATIC_UID) or metadata["uid"]
        with self._lock:
            self._keep(uid, Pod(labels, annotations))

    def _keep(self, uid: str, pod: Pod) -> None:
        self._pods[uid] = pod
        self._pods.move_to_end(uid)
        while len(self._pods) > self._most:
            self._pods.popitem(last=False)

    @contextmanager
    def _get(self, kind: str, asked: Mapping[str, str], silence: float = 0.0) -> Iterator[HTTPResponse]:
        """Ask for pods.

        :param silence: seconds for which the API may send nothing.
        """
        query = urlencode({"fieldSelector": f"spec.nodeName={self._node}", **asked})
        headers = {
            "Accept": _METADATA.format(kind),
            "Authorization": f"Bearer {_token_in(self._api.token)}",
            "User-Agent": "loghub-agent",
        }
        with closing(self._connection()) as connection:
            connection.connect()
            sock = connection.sock
            sock.settimeout(_TIMEOUT + silence)
            with self._stop.waking(lambda: _shut(sock)):
                if self._stop.is_set():
                    raise _RefusedError("stopped")
                connection.request("GET", f"/api/v1/pods?{query}", headers=headers)
                yield _checked(connection.getresponse())

    def _connection(self) -> HTTPSConnection:
        url = urlsplit(self._api.url)
        trusted = ssl.create_default_context(cafile=str(self._api.ca))
        return HTTPSConnection(url.hostname or "", url.port, timeout=_TIMEOUT, context=trusted)


def _token_in(path: Path) -> str:
    """Return the token in a file.

    :raises ValueError: it cannot be sent; the error of the HTTP client would show it.
    """
    token = path.read_bytes().strip()
    if not token.isascii() or not token.decode().isprintable():
        raise ValueError(f"{path} holds no token: it has characters that a header cannot have")
    return token.decode()


def _checked(answer: HTTPResponse) -> HTTPResponse:
    if answer.status == HTTPStatus.GONE:
        raise _GoneError
    if answer.status != HTTPStatus.OK:
        raise _RefusedError(f"status {answer.status}: {answer.read(500).decode(errors='replace')}")
    return answer


def _shut(sock: socket.socket) -> None:
    """End a read of another thread."""
    with suppress(OSError):  # it may be closed
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not the one of TLS, which would forget the session being read
