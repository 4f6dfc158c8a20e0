"""What the server refuses because there is too much of it.

Source: LogHub protocol, Limits, for what a LogGroup may be; the others bound what clients can make this server hold.
All numbers can be changed, so that a test reaches them with small data.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The largest difference between the clocks of client and server, seconds.
MAX_CLOCK_SKEW_SECONDS = 15 * 60

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one server.

    :ivar raw_bytes: a LogGroup, or all LogGroups of a batch, before compression, bytes (413 ``PostBodyTooLarge`` beyond
        it).
    :ivar packages: LogGroups in one batch (400 ``PostBodyInvalid`` beyond it).
    :ivar logs: logs in one LogGroup (400 ``PostBodyInvalid`` beyond it).
    :ivar json_bytes: the body of a request that does not write logs, bytes (413 ``PostBodyTooLarge`` beyond it).
    :ivar page_logs: logs in one GetLogs answer (400 ``ParameterInvalid`` beyond it).
    :ivar page_bytes: JSON of the logs in one GetLogs answer, bytes; one log is always given, more are 400
        ``ParameterInvalid`` beyond it.
    :ivar query_chars: characters of a GetLogs query (400 ``ParameterInvalid`` beyond it).
    :ivar query_words: words of a GetLogs query (400 ``ParameterInvalid`` beyond it).
    :ivar searches: searches (GetLogs) at once; others wait in turn.
    :ivar searches_waiting: searches that may wait (503 ``ServerBusy`` beyond it).
    :ivar search_seconds: time for one search, and for its wait before (500 ``RequestTimeout``, 503 ``ServerBusy``).
    :ivar sql_rows: logs that one SQL statement may be run over (400 ``ParameterInvalid`` beyond it).
    :ivar sql_bytes: bytes of the fields that it names, and bytes of memory that it may take beside them, about (400
        ``ParameterInvalid`` beyond it).
    :ivar sql_result_rows: rows that it may give (400 ``ParameterInvalid`` beyond it).
    :ivar pull_groups: LogGroups in one PullLogs answer (400 ``ParameterInvalid`` beyond it).
    :ivar pull_bytes: raw bytes in one PullLogs answer; at least one LogGroup is always given.
    :ivar connections: connections at once (503 ``ServerBusy`` beyond it).
    :ivar held_bytes: bodies, and answers that are being read, of all connections together, bytes; requests wait in
        turn for it (503 ``ServerBusy`` after ``receive_seconds``).
    :ivar receive_seconds: time for one whole request to arrive (500 ``RequestTimeout`` beyond it).
    :ivar send_seconds: time for a client to take one whole answer (the connection is reset beyond it).
    :ivar keep_alive_seconds: time that an idle connection stays open.
    :ivar sequence_keys: keys of a logstore whose sequence numbers are remembered; the ones used longest ago are
        forgotten first.
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
        """The largest body worth reading: compression of bytes that do not compress adds less than a hundredth."""
        return self.raw_bytes + self.raw_bytes // 100 + 1024
