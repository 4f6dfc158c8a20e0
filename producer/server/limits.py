"""Limits of the server: sizes, counts and times beyond which it refuses a request.

The limits of a LogGroup are LogHub's own (LogHub protocol, Limits). The others bound the memory and time that clients
can take. Each can be changed, so that a test reaches it with little data.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The largest permitted difference between the client's and the server's clock, seconds.
MAX_CLOCK_SKEW_SECONDS = 15 * 60

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one server.

    :ivar raw_bytes: size of a LogGroup, or of all LogGroups of a batch, bytes before compression (beyond it 413
        ``PostBodyTooLarge``).
    :ivar packages: LogGroups in one batch (beyond it 400 ``PostBodyInvalid``).
    :ivar logs: logs in one LogGroup (beyond it 400 ``PostBodyInvalid``).
    :ivar json_bytes: size of the body of a request that does not write logs, bytes (beyond it 413
        ``PostBodyTooLarge``).
    :ivar page_logs: logs in one GetLogs answer (beyond it 400 ``ParameterInvalid``).
    :ivar page_bytes: size of the logs in one GetLogs answer as JSON, bytes (beyond it 400 ``ParameterInvalid``). A
        single log is returned whatever its size.
    :ivar query_chars: characters of a GetLogs query (beyond it 400 ``ParameterInvalid``).
    :ivar query_words: words of a GetLogs query (beyond it 400 ``ParameterInvalid``).
    :ivar searches: concurrent searches (GetLogs); further searches queue.
    :ivar searches_waiting: searches in the queue (beyond it 503 ``ServerBusy``).
    :ivar search_seconds: time for one search (beyond it 500 ``RequestTimeout``), and time in the queue (beyond it 503
        ``ServerBusy``).
    :ivar sql_rows: logs that one SQL statement may read (beyond it 400 ``ParameterInvalid``).
    :ivar sql_bytes: bytes of the fields that a statement names, and, approximately, of the memory that it may take
        besides them (beyond it 400 ``ParameterInvalid``).
    :ivar sql_result_rows: rows in the result of a statement (beyond it 400 ``ParameterInvalid``).
    :ivar pull_groups: LogGroups in one PullLogs answer (beyond it 400 ``ParameterInvalid``).
    :ivar pull_bytes: raw bytes in one PullLogs answer. A single LogGroup is returned whatever its size.
    :ivar connections: concurrent connections (beyond it 503 ``ServerBusy``).
    :ivar held_bytes: bytes of request bodies, and of answers being read, over all connections. Further requests queue
        (after ``receive_seconds`` 503 ``ServerBusy``).
    :ivar receive_seconds: time for one whole request to arrive (beyond it 500 ``RequestTimeout``).
    :ivar send_seconds: time for a client to read one whole answer (beyond it the connection is reset).
    :ivar keep_alive_seconds: time that an idle connection stays open.
    :ivar sequence_keys: keys of a logstore whose sequence numbers are remembered; the least recently used are dropped
        first.
    """

    raw_bytes: int = 10 * _MIB
    packages: int = 4096
    logs: int = 512_000
    json_bytes: int = 64 * 1024
    page_logs: int = 100
    page_bytes: int = 10 * _MIB
    query_chars: int = 8192
    query_words: int = 100
    searches: int = 2
    searches_waiting: int = 64
    search_seconds: float = 60.0
    sql_rows: int = 1_000_000
    sql_bytes: int = 256 * _MIB
    sql_result_rows: int = 10_000
    pull_groups: int = 1000
    pull_bytes: int = 10 * _MIB
    connections: int = 512
    held_bytes: int = 128 * _MIB
    receive_seconds: float = 30.0
    send_seconds: float = 30.0
    keep_alive_seconds: float = 60.0
    sequence_keys: int = 100_000

    @property
    def wire_bytes(self) -> int:
        """Return the largest body to read: compression makes incompressible bytes less than one percent larger."""
        return self.raw_bytes + self.raw_bytes // 100 + 1024
