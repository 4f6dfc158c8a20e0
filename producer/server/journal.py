"""Records of requests, for tests that count requests and measure the time between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from ..runtime.locks import Lock

#: Bytes of a record without its texts, and of each name-value pair without its texts (measured).
_RECORD_BYTES = 768
_PAIR_BYTES = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """A request and its outcome.

    :ivar number: 1 for the first request since the server was made.
    :ivar when: time when its headers had arrived, ``time.monotonic()`` seconds.
    :ivar finished: time when its answer was ready, or its connection was to be cut, ``time.monotonic()`` seconds.
    :ivar operation: ``PutLogs``, ``PullLogs``, …
    :ivar method: ``GET``, ``POST``, …
    :ivar path: the decoded path, without the query.
    :ivar query: the decoded query parameters.
    :ivar headers: the headers, names in lower case.
    :ivar project: the project it named, or an empty string.
    :ivar logstore: the logstore it named, or an empty string.
    :ivar request_id: the ``x-log-requestid`` of its answer.
    :ivar status: the status answered; None if there was no answer or only a part of one.
    :ivar error_code: the error code answered, or None.
    :ivar raw_size: bytes before compression, from ``x-log-bodyrawsize``; 0 without it.
    :ivar body_size: bytes of the body as received.
    :ivar logs: logs that it stored, also if its answer was lost.
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
    """The last records, bounded by number and by bytes.

    :ivar dropped: the number of records dropped since :meth:`clear`.
    """

    def __init__(self, capacity: int, max_bytes: int) -> None:
        """Create an empty journal.

        :param capacity: largest number of records.
        :param max_bytes: approximate limit of the memory of all records, bytes.
        """
        self._capacity = capacity
        self._max_bytes = max_bytes
        # Guards all below: the server's thread appends while a test reads.
        self._lock = Lock()
        self._records: deque[tuple[RequestRecord, int]] = deque()
        self._bytes = 0
        self.dropped = 0

    def add(self, record: RequestRecord) -> None:
        """Append ``record``, and drop the oldest records beyond the limits."""
        size = _bytes_of(record)
        with self._lock:
            self._records.append((record, size))
            self._bytes += size
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        while len(self._records) > self._capacity or self._bytes > self._max_bytes:
            self._bytes -= self._records.popleft()[1]
            self.dropped += 1

    def records(self) -> list[RequestRecord]:
        """Return the records, in the order in which their requests ended."""
        with self._lock:
            return [record for record, _ in self._records]

    def clear(self) -> None:
        """Drop all records, and reset ``dropped``."""
        with self._lock:
            self._records.clear()
            self._bytes = self.dropped = 0


def _bytes_of(record: RequestRecord) -> int:
    """Estimate the memory of a record, bytes. The client chooses its path, parameters and headers."""
    pairs = (*record.query.items(), *record.headers.items())
    return _RECORD_BYTES + len(record.path) + sum(_PAIR_BYTES + len(name) + len(value) for name, value in pairs)
