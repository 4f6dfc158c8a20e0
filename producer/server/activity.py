"""Totals of the server's requests, for ``/metrics`` and for the list of clients that write.

There is one total for each operation and status, and one for each client that writes, by user agent and address.
Clients choose their user agents, so the list has at most a thousand rows. The least recently seen client is dropped
first.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ..runtime.locks import Lock
from .journal import RequestRecord

_MAX_WRITERS = 1000
_MAX_TEXT = 256

_access = logging.getLogger("loghub.server.access")


@dataclass(slots=True)
class Sums:
    """Totals over requests: their number, duration in seconds, body bytes, and logs stored."""

    requests: int = 0
    seconds: float = 0.0
    bytes: int = 0
    logs: int = 0

    def add(self, record: RequestRecord) -> None:
        """Count one request."""
        self.requests += 1
        self.seconds += record.finished - record.when
        self.bytes += record.body_size
        self.logs += record.logs


@dataclass(slots=True)
class Writer:
    """A client that writes.

    :ivar user_agent: its user agent.
    :ivar address: its IP address.
    :ivar sums: totals of its requests.
    :ivar errors: number of its requests that were refused or not answered.
    :ivar endpoint: the endpoint that it uses and the reason, if it has several and does not use the first.
    :ivar seen: time of its last write, Unix seconds.
    """

    user_agent: str
    address: str
    sums: Sums
    errors: int
    endpoint: str
    seen: float


class Activity:
    """All totals of one server; thread-safe."""

    def __init__(self) -> None:
        # Guards the fields below: the server's thread adds while other threads read.
        self._lock = Lock()
        self._operations: dict[tuple[str, str], Sums] = {}
        self._writers: OrderedDict[tuple[str, str], Writer] = OrderedDict()

    def add(self, record: RequestRecord, address: str, now: float) -> None:
        """Count a request that has ended."""
        key = (record.operation, "none" if record.status is None else str(record.status))
        with self._lock:
            self._operations.setdefault(key, Sums()).add(record)
            if record.operation == "PutLogs":
                self._add_writer(record, address, now)

    def operations(self) -> dict[tuple[str, str], Sums]:
        """Return the totals of each operation and status; the status is ``none`` for requests without an answer."""
        with self._lock:
            return {key: replace(sums) for key, sums in self._operations.items()}

    def writers(self) -> list[Writer]:
        """Return the clients that write, the most recent first."""
        with self._lock:
            return [replace(writer, sums=replace(writer.sums)) for writer in reversed(self._writers.values())]

    def _add_writer(self, record: RequestRecord, address: str, now: float) -> None:
        agent = record.headers.get("user-agent", "")[:_MAX_TEXT]
        writer = self._writers.setdefault((agent, address), Writer(agent, address, Sums(), 0, "", now))
        writer.sums.add(record)
        writer.errors += record.status != 200
        writer.endpoint = record.headers.get("x-producer-endpoint", "")[:_MAX_TEXT]
        writer.seen = now
        self._writers.move_to_end((agent, address))
        if len(self._writers) > _MAX_WRITERS:
            self._writers.popitem(last=False)


def log_access(record: RequestRecord, address: str, now: float) -> None:
    """Write the request as one line of JSON to the logger ``loghub.server.access``.

    JSON escapes the client's texts, so none of them can break the line.
    """
    line = {
        "time": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds"),
        "client": address,
        "operation": record.operation,
        "method": record.method,
        "path": record.path,
        "project": record.project,
        "status": record.status,
        "error": record.error_code,
        "ms": round((record.finished - record.when) * 1000, 1),
        "bytes": record.body_size,
        "logs": record.logs,
        "user_agent": record.headers.get("user-agent", ""),
        "request_id": record.request_id,
    }
    _access.info("%s", json.dumps(line))
