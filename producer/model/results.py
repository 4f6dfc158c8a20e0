"""Results: the attempts and the outcome of a record's delivery.

A batch completes once, and every send in it shares one :class:`Result`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .records import LogItem, StreamKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One HTTP request for a batch, and its outcome.

    :ivar success: True if the server answered 200, or reported that it already has the batch.
    :ivar request_id: the server's ``x-log-requestid``, or an empty string.
    :ivar http_status: the HTTP status; None if no response came.
    :ivar error_code: empty on success.
    :ivar error_message: empty on success.
    :ivar timestamp_ms: the start of the request, milliseconds since the Unix epoch.
    :ivar duration_ms: the duration of the request, milliseconds.
    :ivar may_have_been_stored: True if the attempt failed, but the server may have stored the batch.
    :ivar already_written: True if the attempt succeeded because the server already had the batch's sequence number: an
        earlier request of an idempotent stream was stored. ``http_status`` is then that of the refusal.
    """

    success: bool
    request_id: str = ""
    http_status: int | None = None
    error_code: str = ""
    error_message: str = ""
    timestamp_ms: int = 0
    duration_ms: float = 0.0
    may_have_been_stored: bool = False
    already_written: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of a record: delivered or failed.

    Example:

        >>> result = stream.send({"level": "INFO"}, urgent=True).result(timeout=10)
        >>> result.successful, result.error_code, result.attempt_count
        (True, '', 1)
        >>> [attempt.http_status for attempt in result.attempts]
        [200]

    :ivar successful: True if the server acknowledged the record.
    :ivar attempts: the newest attempts, oldest first, at most ``max_reserved_attempts`` of them.
    :ivar attempt_count: the number of all attempts.
    :ivar may_have_been_stored: True if the record failed, but at least one of all attempts may have stored it.
    """

    successful: bool
    attempts: tuple[Attempt, ...]
    attempt_count: int
    may_have_been_stored: bool = False

    @property
    def error_code(self) -> str:
        """The error code of the last attempt; empty on success."""
        return self.attempts[-1].error_code if self.attempts else ""

    @property
    def error_message(self) -> str:
        """The error message of the last attempt; empty on success."""
        return self.attempts[-1].error_message if self.attempts else ""

    @property
    def already_written(self) -> bool:
        """True if the last attempt found the batch already written, as :class:`Attempt` describes."""
        return bool(self.attempts) and self.attempts[-1].already_written

    @property
    def request_id(self) -> str:
        """The request id of the last attempt, for the service's support; may be empty."""
        return self.attempts[-1].request_id if self.attempts else ""


@dataclass(frozen=True, slots=True)
class Undelivered:
    """The logs of a batch that failed, for a function given as the producer's ``fallback``.

    :ivar key: their stream: project, logstore, topic, source, shard hash and tags.
    :ivar logs: the logs, each with its time, so that they can be sent again. Values are text as it was encoded, or
        bytes if they are not UTF-8.
    """

    key: StreamKey
    logs: tuple[LogItem, ...]

    def __iter__(self) -> Iterator[LogItem]:
        return iter(self.logs)

    def __len__(self) -> int:
        return len(self.logs)


#: A function for ``send(callback=…)``. It runs once on a handler thread, on success and on failure.
Callback = Callable[[Result], object]
