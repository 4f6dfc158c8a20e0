"""What the server refuses because there is too much of it.

Source: LogHub protocol, Limits. All numbers can be changed, so that a test reaches them with small data.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The largest difference between the clocks of client and server, seconds.
MAX_CLOCK_SKEW_SECONDS = 15 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one server.

    :ivar raw_bytes: a LogGroup, or all LogGroups of a batch, before compression, bytes (413 ``PostBodyTooLarge`` beyond
        it).
    :ivar packages: LogGroups in one batch (400 ``PostBodyInvalid`` beyond it).
    :ivar logs: logs in one LogGroup (400 ``PostBodyInvalid`` beyond it).
    :ivar page_logs: logs in one GetLogs answer (400 ``ParameterInvalid`` beyond it).
    :ivar pull_groups: LogGroups in one PullLogs answer (400 ``ParameterInvalid`` beyond it).
    :ivar pull_bytes: raw bytes in one PullLogs answer; at least one LogGroup is always given.
    :ivar receive_seconds: time for one whole request to arrive (500 ``RequestTimeout`` beyond it).
    :ivar keep_alive_seconds: time that an idle connection stays open.
    """

    raw_bytes: int = 10 * 1024 * 1024
    packages: int = 4096
    logs: int = 512_000
    page_logs: int = 100
    pull_groups: int = 1000
    pull_bytes: int = 10 * 1024 * 1024
    receive_seconds: float = 30.0
    keep_alive_seconds: float = 60.0

    @property
    def wire_bytes(self) -> int:
        """The largest body worth reading: compression of bytes that do not compress adds less than a hundredth."""
        return self.raw_bytes + self.raw_bytes // 100 + 1024
