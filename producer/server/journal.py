"""What was asked of the server: one record a request, for tests that count requests and the time between them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request and what became of it.

    :ivar number: 1 for the first request since the server was made.
    :ivar when: when its headers had arrived, ``time.monotonic()`` seconds.
    :ivar finished: when its answer was ready to be sent (or its connection to be cut), ``time.monotonic()`` seconds.
    :ivar operation: ``PutLogs``, ``PullLogs``, …
    :ivar method: ``GET``, ``POST``, …
    :ivar path: the decoded path, without the query.
    :ivar query: the decoded query parameters.
    :ivar headers: the headers, names in lower case.
    :ivar project: the project it named, or an empty string.
    :ivar logstore: the logstore it named, or an empty string.
    :ivar request_id: the ``x-log-requestid`` of its answer.
    :ivar status: the status answered, or None when no (whole) answer was given.
    :ivar error_code: the error code answered, or None.
    :ivar raw_size: bytes before compression that ``x-log-bodyrawsize`` declared, 0 without it.
    :ivar body_size: bytes of the body as it arrived.
    :ivar logs: logs that it stored; for a request without an answer, what is in the store all the same.
    """

    number: int
    when: float
    finished: float
    operation: str
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    project: str
    logstore: str
    request_id: str
    status: int | None
    error_code: str | None
    raw_size: int
    body_size: int
    logs: int


class Journal:
    """The last records, as many as it is told to keep."""

    def __init__(self, capacity: int) -> None:
        self._records: deque[RequestRecord] = deque(maxlen=capacity)
        # Guards _records: the server's thread appends while a test reads.
        self._lock = threading.Lock()

    def add(self, record: RequestRecord) -> None:
        """Keep ``record``."""
        with self._lock:
            self._records.append(record)

    def records(self) -> list[RequestRecord]:
        """The records kept, in the order in which their requests ended."""
        with self._lock:
            return list(self._records)

    def clear(self) -> None:
        """Forget them."""
        with self._lock:
            self._records.clear()
