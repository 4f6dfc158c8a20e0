"""What a sender learns of a record: attempts, and the result that they amount to.

A batch settles once, and every send in it shares one :class:`Result`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One HTTP request for a batch, and what came of it.

    :ivar success: the server answered 200, or that it has the batch already.
    :ivar request_id: the server's ``x-log-requestid``, or an empty string.
    :ivar http_status: the HTTP status, or None if no answer came.
    :ivar error_code: empty on success.
    :ivar error_message: empty on success.
    :ivar timestamp_ms: when it began, milliseconds since the Unix epoch.
    :ivar duration_ms: how long it took, milliseconds.
    :ivar may_have_been_stored: it failed, and the server may have stored the batch all the same.
    :ivar already_written: it succeeded in that the server refused the batch's sequence number, since an earlier request
        of an idempotent stream had stored it; ``http_status`` is that of the refusal.
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
    """How the delivery of a record ended.

    :ivar successful: the server acknowledged it.
    :ivar attempts: the newest attempts, oldest first, at most ``max_reserved_attempts`` of them.
    :ivar attempt_count: all attempts, also those no longer reserved.
    :ivar may_have_been_stored: it failed, and at least one of all attempts may have stored it.
    """

    successful: bool
    attempts: tuple[Attempt, ...]
    attempt_count: int
    may_have_been_stored: bool = False

    @property
    def error_code(self) -> str:
        """The last attempt's error code; empty on success."""
        return self.attempts[-1].error_code if self.attempts else ""

    @property
    def error_message(self) -> str:
        """The last attempt's error message; empty on success."""
        return self.attempts[-1].error_message if self.attempts else ""

    @property
    def already_written(self) -> bool:
        """Whether the last attempt found the batch written; see :class:`Attempt`."""
        return bool(self.attempts) and self.attempts[-1].already_written

    @property
    def request_id(self) -> str:
        """The last attempt's request id, for the service's support; may be empty."""
        return self.attempts[-1].request_id if self.attempts else ""


#: What ``send(callback=…)`` takes; it runs on a handler thread, once, for success and failure alike.
Callback = Callable[[Result], object]
