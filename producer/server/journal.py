"""What was asked of the server: one record a request, for tests that count requests and the time between them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

#: Bytes that a record takes beside its texts, and that the names and values in it take beside theirs (measured).
_RECORD_BYTES = 768
_PAIR_BYTES = 130


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
    """The last records: as many as it is told to keep, and no more bytes of them than it is told."""

    def __init__(self, capacity: int, max_bytes: int) -> None:
        """Nothing is kept yet.

        :param capacity: how many records are kept at most.
        :param max_bytes: how many bytes of memory they may take together, about.
        """
        self._capacity = capacity
        self._max_bytes = max_bytes
        # Guards all below: the server's thread appends while a test reads.
        self._lock = threading.Lock()
        self._records: deque[tuple[RequestRecord, int]] = deque()
        self._bytes = 0
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """How many records there was no more room for, since :meth:`clear`."""
        with self._lock:
            return self._dropped

    def add(self, record: RequestRecord) -> None:
        """Keep ``record``, and drop the oldest ones that it leaves no room for."""
        size = _bytes_of(record)
        with self._lock:
            self._records.append((record, size))
            self._bytes += size
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        while len(self._records) > self._capacity or self._bytes > self._max_bytes:
            self._bytes -= self._records.popleft()[1]
            self._dropped += 1

    def records(self) -> list[RequestRecord]:
        """The records kept, in the order in which their requests ended."""
        with self._lock:
            return [record for record, _ in self._records]

    def clear(self) -> None:
        """Forget them, and how many were dropped."""
        with self._lock:
            self._records.clear()
            self._bytes = self._dropped = 0


def _bytes_of(record: RequestRecord) -> int:
    """What a record takes of the memory, about: what clients choose of it is its path, its parameters and headers."""
    pairs = (*record.query.items(), *record.headers.items())
    return _RECORD_BYTES + len(record.path) + sum(_PAIR_BYTES + len(name) + len(value) for name, value in pairs)
