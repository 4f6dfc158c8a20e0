"""Every error of the package, as one tree.

::

    ProducerError                      the base: ``except ProducerError`` catches whatever this package raises
     ├── ConfigError                   a wrong option: its name, the rule, the value
     ├── InvalidArgumentError          a wrong argument of ``send``, such as a key that is not text
     │    ├── LogSizeTooLargeError     one log (or one list) larger than a limit: both numbers
     │    └── MaxBatchCountExceedError more logs in one list than one batch may hold
     ├── SendTimeoutError              no memory became free within ``max_block_ms``
     ├── ProducerClosedError           ``send`` after ``close`` began
     ├── FlushTimeoutError             ``flush`` did not finish in time: how many batches are left
     ├── CloseTimeoutError             ``close`` did not finish in time: how many records were failed
     ├── ResultFailedError             what a future raises: carries the ``Result``
     ├── CompressionError              a body that does not compress or decompress
     └── AttemptError                  one attempt to deliver a batch failed (seen in ``Attempt``, raised by sinks)
          ├── RetriableError           transient: retried with backoff
          │    ├── NetworkError        no usable answer came
          │    │    └── UnreachableError  not even a connection: the project is held back
          │    ├── ServerError         the server failed (5xx), or its answer made no sense
          │    ├── CredentialsError    the credentials provider failed
          │    ├── UnauthorizedError   refused credentials: refreshed, retried a bounded number of times
          │    ├── ClockSkewError      refused time: the clock's offset is learned, retried at once
          │    └── QuotaExceededError  slowed down by the server: that logstore is held back
          └── PermanentError           retrying cannot help
               ├── RejectedError       the server refused the request for what it says
               ├── BodyTooLargeError   the server found the request too large: the batch is split in two
               ├── ProjectNotConfiguredError  no ``ProjectConfig`` for the record's project
               ├── DeliveryAbandonedError     given up by this side: closed at its deadline, or forked away
               └── InternalError       a bug of this package or of a plugged-in part

Whether an attempt may be repeated is a property of the class, so that a user's own ``RetryPolicy`` can use it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .results import Result, SendFuture


class ProducerError(Exception):
    """The base of every error that this package raises.

    :ivar accepted: where ``send_many`` raised half-way: the futures of what it had accepted, in order.
    :ivar accepted_logs: how many logs those are; the logs after them were not accepted.
    """

    accepted: Sequence[SendFuture] = ()
    accepted_logs = 0


class ConfigError(ProducerError, ValueError):
    """A configuration option is unknown, of the wrong type, or out of range.

    :ivar name: the option.
    :ivar rule: what it must be.
    :ivar value: what was given; masked for secrets.
    """

    def __init__(self, name: str, rule: str, value: object) -> None:
        super().__init__(name, rule, value)
        self.name, self.rule, self.value = name, rule, value

    def __str__(self) -> str:
        # An unknown name has no value worth showing, which could be a secret.
        return f"{self.name}: {self.rule}" + ("" if self.value is self.name else f", got {self.value!r}")


class InvalidArgumentError(ProducerError, ValueError):
    """An argument of ``send`` that cannot become a log."""


class LogSizeTooLargeError(InvalidArgumentError):
    """A log, or a list of logs that must travel together, is larger than a limit.

    :ivar size: what it needs, bytes.
    :ivar limit: what is allowed, bytes.
    """

    def __init__(self, size: int, limit: int, what: str) -> None:
        super().__init__(size, limit, what)
        self.size, self.limit, self.what = size, limit, what

    def __str__(self) -> str:
        return f"{self.what}: {self.size} bytes, the limit is {self.limit} bytes"


class MaxBatchCountExceedError(InvalidArgumentError):
    """A list holds more logs than one batch may carry.

    :ivar count: logs in the list.
    :ivar limit: logs in a batch.
    """

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(count, limit)
        self.count, self.limit = count, limit

    def __str__(self) -> str:
        return f"a list of {self.count} logs must travel in one batch, which holds {self.limit}: use send_many"


class SendTimeoutError(ProducerError, TimeoutError):
    """No memory became free within ``max_block_ms``.

    :ivar limit: ``total_size_in_bytes``.
    :ivar used: bytes taken at that moment.
    :ivar wanted: bytes this send needed.
    :ivar oldest_age: age of the oldest record that is not settled, seconds; None if there is none.
    :ivar waited: how long this send waited, seconds.
    """

    def __init__(
        self, *, limit: int, used: int, wanted: int, oldest_age: float | None = None, waited: float = 0.0
    ) -> None:
        super().__init__(limit, used, wanted, oldest_age, waited)
        self.limit, self.used, self.wanted, self.oldest_age, self.waited = (
            limit,
            used,
            wanted,
            oldest_age,
            waited,
        )

    def __str__(self) -> str:
        age = "unknown" if self.oldest_age is None else f"{self.oldest_age:.1f} s"
        return (
            f"no memory within {self.waited:.3f} s: {self.wanted} bytes wanted, {self.used} of {self.limit} bytes "
            f"(total_size_in_bytes) used, the oldest record waits for {age}. Is the server slow or down? "
            "Raise total_size_in_bytes or max_block_ms, or send less."
        )


class ProducerClosedError(ProducerError, RuntimeError):
    """``send`` was called after ``close`` began."""


class FlushTimeoutError(ProducerError, TimeoutError):
    """``flush`` did not finish in time.

    :ivar remaining: batches accepted before the flush that are not settled yet.
    """

    def __init__(self, remaining: int, timeout: float) -> None:
        super().__init__(remaining, timeout)
        self.remaining, self.timeout = remaining, timeout

    def __str__(self) -> str:
        return f"flush: {self.remaining} batches are still on their way after {self.timeout:.3f} s; they go on"


class CloseTimeoutError(ProducerError, TimeoutError):
    """``close`` did not finish in time.

    :ivar failed_records: records that were failed because the time was over.
    :ivar stuck: names of the threads that did not end, such as one inside a user's callback.
    """

    def __init__(self, timeout: float, failed_records: int, stuck: tuple[str, ...]) -> None:
        super().__init__(timeout, failed_records, stuck)
        self.timeout, self.failed_records, self.stuck = timeout, failed_records, stuck

    def __str__(self) -> str:
        threads = f"; threads that did not end: {', '.join(self.stuck)}" if self.stuck else ""
        return f"close: not done within {self.timeout:.3f} s; {self.failed_records} records were failed{threads}"


class ResultFailedError(ProducerError):
    """The record was not delivered.

    :ivar result: the :class:`~producer.results.Result` with every reserved attempt.
    """

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.result = result

    def __str__(self) -> str:
        result = self.result
        stored = "; the server may have stored it" if result.may_have_been_stored else ""
        return (
            f"not delivered after {result.attempt_count} attempts: {result.error_code}: {result.error_message}"
            f" (request id {result.request_id or 'none'}){stored}"
        )


class CompressionError(ProducerError, ValueError):
    """A body that cannot be compressed or decompressed as asked."""


class AttemptError(ProducerError):
    """One attempt to deliver a batch failed.

    :cvar retriable: whether the default policy tries again.
    :cvar max_consecutive: how often in a row this class is retried, besides ``retries``; None for no bound of its own.
    :cvar immediate: whether the next attempt needs no backoff.
    :ivar code: the server's error code, or one of this package's own (``RequestError``, ``BadResponse``, …).
    :ivar message: what the server, or the system, said.
    :ivar http_status: the HTTP status, or None if no answer came.
    :ivar request_id: the server's request id, or an empty string.
    :ivar may_have_been_stored: whether the request left completely and no answer tells what became of it.
    """

    retriable = False
    max_consecutive: int | None = None
    immediate = False

    def __init__(
        self,
        code: str,
        message: str,
        *,
        http_status: int | None = None,
        request_id: str = "",
        may_have_been_stored: bool = False,
    ) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message
        self.http_status, self.request_id = http_status, request_id
        self.may_have_been_stored = may_have_been_stored

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.message), self.__dict__


class RetriableError(AttemptError):
    """A failure that another attempt may not meet."""

    retriable = True


class NetworkError(RetriableError):
    """No usable answer: refused, reset, timed out, name not resolved."""


class UnreachableError(NetworkError):
    """No connection: refused, not in time, name not resolved, TLS not agreed on. Nothing can have been stored."""


class ServerError(RetriableError):
    """The server failed (5xx), or answered what no LogHub answers."""


class CredentialsError(RetriableError):
    """The credentials provider raised, hung, or returned something else than credentials."""


class UnauthorizedError(RetriableError):
    """The server refused the credentials; they are refreshed before the next attempt."""

    max_consecutive = 3


class ClockSkewError(RetriableError):
    """The server found our time too far from its own; its ``Date`` header has been learned."""

    max_consecutive = 1
    immediate = True


class QuotaExceededError(RetriableError):
    """The server asks to slow down; only the logstore concerned is held back."""


class PermanentError(AttemptError):
    """A failure that every other attempt would meet too."""


class RejectedError(PermanentError):
    """The server refused the request for what it says: parameters, names, encoding, permissions."""


class BodyTooLargeError(PermanentError):
    """The server found the request too large; a batch of several records is split in two, each of which is sent."""


class ProjectNotConfiguredError(PermanentError):
    """The record's project has no ``ProjectConfig`` in this producer."""


class DeliveryAbandonedError(PermanentError):
    """This side gave up: ``close`` reached its deadline, or the process was forked."""


class InternalError(PermanentError):
    """An unexpected exception inside a stage; the record is failed rather than lost."""
