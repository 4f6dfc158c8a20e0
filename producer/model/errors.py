"""Every error of the package, as one tree.

::

    ProducerError                      the base: ``except ProducerError`` catches every error of this package ├──
    ConfigError                   a wrong option: its name, the rule, the value ├── InvalidArgumentError          a
    wrong argument of ``send``, such as a key that is not text │    ├── LogSizeTooLargeError     one log (or one list)
    larger than a limit: both numbers │    └── MaxBatchCountExceedError more logs in one list than one batch may hold
    ├── SendTimeoutError              no memory, or no room in the channel, within ``max_block_ms`` ├──
    ProducerClosedError           ``send`` after ``close`` began ├── StreamStoppedError            ``send`` to an
    ordered stream after a record failed permanently ├── FlushTimeoutError             ``flush`` did not finish in time:
    the number of batches left ├── CloseTimeoutError             ``close`` did not finish in time: the number of records
    failed ├── TargetError                   ``check`` found a fault of the target: the option, and a sentence ├──
    ResultFailedError             raised by a future: carries the ``Result`` ├── CompressionError              a body
    that does not compress or decompress ├── ChannelError                  a channel failed: its name, and advice │ ├──
    TransactionStateError    a transaction's methods called in the wrong order │    ├── TransactionFullError more puts
    or takes than ``transaction_capacity`` │    ├── ChannelFullError         no room within ``keep_alive``: size,
    capacity, what was asked │    ├── ChannelClosedError       used after ``close``, or in a forked child │    ├──
    ChannelLockedError       another channel owns the directory: which one │    ├── ChannelFormatError       the
    directory or a file in it is of another kind, or of a newer version │    ├── ChannelKeyError          an encryption
    key is missing or wrong: its id │    └── ChannelIOError           the disk failed; the call had no effect │ └──
    DiskFullError       too little free space for puts: bytes free, bytes wanted └── AttemptError one attempt to deliver
    a batch failed (seen in ``Attempt``, raised by sinks) ├── RetriableError           transient: retried with backoff │
    ├── NetworkError        no usable answer came │    │    └── UnreachableError  not even a connection: circuit open
    for the project │    ├── ServerError         the server failed (5xx), or its answer is invalid │    ├──
    CredentialsError    the credentials provider failed │    ├── NumberNotNotedError the channel could not note an
    idempotent batch before it is sent │    ├── UnauthorizedError   refused credentials: refreshed, retried a bounded
    number of times │    ├── ClockSkewError      refused time: the clock offset is learned, retried at once │ └──
    QuotaExceededError  quota used up: that logstore is throttled └── PermanentError           retrying cannot help ├──
    RejectedError       the server refused the request's content │    ├── InvalidSequenceError  its sequence number is
    not above the last one of the hash key │    └── MisconfiguredError  an operator can fix the cause: key, permission,
    project, logstore │         └── ProjectNotConfiguredError  no ``ProjectConfig`` for the record's project ├──
    BodyTooLargeError   the request is too large: the batch is split in two ├── DeliveryAbandonedError     abandoned by
    this side: closed at the deadline, or forked └── InternalError       a bug of this package or of a plugged-in part

Whether an attempt may be retried is a property of the class, so that a user's own ``RetryPolicy`` can use it, too. The
file is long because it holds the whole tree.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from ..text.plural import counted
from ..text.printable import described

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from .records import StreamKey
    from .results import Result


class ProducerError(Exception):
    """Base of every error that this package raises.

    :ivar accepted: futures of the logs that ``send_many`` accepted before it raised, in order.
    :ivar accepted_logs: number of those logs; the logs after them were not accepted.
    :ivar drop_reason: name in ``stats().dropped`` for logs that an integration drops because of the error.
    """

    accepted: Sequence[Future[Result]] = ()
    accepted_logs = 0
    drop_reason = "error"


class ConfigError(ProducerError, ValueError):
    """Raised when a configuration option is unknown, of the wrong type, or out of range.

    :ivar name: the option.
    :ivar rule: the rule that it breaks.
    :ivar value: the given value; masked for secrets.
    """

    def __init__(self, name: str, rule: str, value: object) -> None:
        super().__init__(name, rule, value)
        self.name, self.rule, self.value = name, rule, value

    def __str__(self) -> str:
        # The value of an unknown name is not shown: it could be a secret.
        return f"{self.name}: {self.rule}" + ("" if self.value is self.name else f", got {described(self.value)}")


class InvalidArgumentError(ProducerError, ValueError):
    """Raised when an argument of ``send`` cannot become a log."""

    drop_reason = "invalid"


class LogSizeTooLargeError(InvalidArgumentError):
    """Raised when a log, or a list of logs for one batch, is larger than a limit.

    :ivar size: its size, bytes.
    :ivar limit: the limit, bytes.
    """

    drop_reason = "too_large"

    def __init__(self, size: int, limit: int, what: str) -> None:
        super().__init__(size, limit, what)
        self.size, self.limit, self.what = size, limit, what

    def __str__(self) -> str:
        return f"{self.what}: {counted(self.size, 'byte')}, the limit is {counted(self.limit, 'byte')}"


class MaxBatchCountExceedError(InvalidArgumentError):
    """Raised when a list for one batch has more logs than a batch may hold.

    :ivar count: logs in the list.
    :ivar limit: logs in a batch.
    """

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(count, limit)
        self.count, self.limit = count, limit

    def __str__(self) -> str:
        return (
            f"a list of {counted(self.count, 'log')} must travel in one batch, which holds {self.limit}: use send_many"
        )


class SendTimeoutError(ProducerError, TimeoutError):
    """Raised when no memory, or channel capacity, became free within ``max_block_ms`` (buffer full).

    :ivar limit: ``total_size_in_bytes``; for a channel its ``byte_capacity``, 0 for no limit.
    :ivar used: bytes in use at that moment.
    :ivar wanted: bytes that this send needed.
    :ivar oldest_age: age of the oldest incomplete record, seconds; None if there is none.
    :ivar waited: wait of this send, seconds.
    :ivar text: the message, if it is not about memory.
    """

    drop_reason = "full"

    def __init__(
        self,
        *,
        limit: int,
        used: int,
        wanted: int,
        oldest_age: float | None = None,
        waited: float = 0.0,
        text: str | None = None,
    ) -> None:
        super().__init__(limit, used, wanted, oldest_age, waited)
        self.text = text
        self.limit, self.used, self.wanted, self.oldest_age, self.waited = (
            limit,
            used,
            wanted,
            oldest_age,
            waited,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        if self.text is not None:
            return self.text
        age = "unknown" if self.oldest_age is None else f"{self.oldest_age:.1f} s"
        return (
            f"no memory within {self.waited:.3f} s: {counted(self.wanted, 'byte')} wanted, {self.used} of "
            f"{counted(self.limit, 'byte')} (total_size_in_bytes) used, the oldest record has waited {age}. "
            "Is the server slow or down? Raise total_size_in_bytes or max_block_ms, or send less."
        )


class ProducerClosedError(ProducerError, RuntimeError):
    """Raised by ``send`` after ``close`` began."""

    drop_reason = "closed"


class StreamStoppedError(ProducerError, RuntimeError):
    """Raised when an ordered stream is stopped, because a batch failed permanently.

    Nothing after that batch is sent until ``Stream.resume()``.

    :ivar stream: the stream.
    :ivar first: the result of the first batch that failed.
    """

    drop_reason = "stopped"

    def __init__(self, stream: StreamKey, first: Result) -> None:
        super().__init__(stream, first)
        self.stream, self.first = stream, first

    def __str__(self) -> str:
        stream, first = self.stream, self.first
        return (
            f"stream {stream.project}/{stream.logstore} topic {stream.topic!r} is stopped: a batch failed "
            f"permanently after {counted(first.attempt_count, 'attempt')}: {first.error_code}: {first.error_message}. "
            "Later records are not sent, to avoid a silent gap: fix the failure first, then call resume() on the stream"
        )


class FlushTimeoutError(ProducerError, TimeoutError):
    """Raised when ``flush`` did not finish in time.

    :ivar remaining: batches accepted before the flush that are not completed.
    :ivar stored: events in the channel at that moment; 0 without one.
    """

    def __init__(self, remaining: int, timeout: float, stored: int = 0) -> None:
        super().__init__(remaining, timeout, stored)
        self.remaining, self.timeout, self.stored = remaining, timeout, stored

    def __str__(self) -> str:
        stored = f", and the channel holds {counted(self.stored, 'event')}," if self.stored else ""
        left = counted(self.remaining, "batch is still in flight", "batches are still in flight")
        return f"flush: {left}{stored} after {self.timeout:.3f} s; delivery continues"


class CloseTimeoutError(ProducerError, TimeoutError):
    """Raised when ``close`` did not finish in time.

    :ivar failed_records: records failed at the deadline.
    :ivar stuck: names of the threads that did not end, such as one inside a user's callback.
    """

    def __init__(self, timeout: float, failed_records: int, stuck: tuple[str, ...]) -> None:
        super().__init__(timeout, failed_records, stuck)
        self.timeout, self.failed_records, self.stuck = timeout, failed_records, stuck

    def __str__(self) -> str:
        threads = f"; threads that did not end: {', '.join(self.stuck)}" if self.stuck else ""
        failed = counted(self.failed_records, "record was failed", "records were failed")
        return f"close: not done within {self.timeout:.3f} s; {failed}{threads}"


class TargetError(ProducerError):
    """Raised when ``check`` found that logs would not arrive.

    :ivar problem: the cause: ``endpoint``, ``project``, ``logstore``, ``access_key_id``, ``access_key_secret``,
        ``security_token``, ``credentials``, ``region``, ``clock``, ``http`` or ``server``. ``__cause__`` is the
        :class:`AttemptError`.
    """

    def __init__(self, problem: str, message: str) -> None:
        super().__init__(problem, message)
        self.problem, self.message = problem, message

    def __str__(self) -> str:
        return self.message


class ResultFailedError(ProducerError):
    """Raised by a future whose record was not delivered.

    :ivar result: the :class:`~producer.model.results.Result` with every reserved attempt.
    """

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.result = result

    def __str__(self) -> str:
        result = self.result
        stored = "; the server may have stored it" if result.may_have_been_stored else ""
        attempts = counted(result.attempt_count, "attempt")
        return (
            f"not delivered after {attempts}: {result.error_code}: {result.error_message}"
            f" (request id {result.request_id or 'none'}){stored}"
        )


class CompressionError(ProducerError, ValueError):
    """Raised when a body cannot be compressed or decompressed."""


class ChannelError(ProducerError):
    """Base of the errors of channels.

    :ivar channel: the channel's name.
    """

    drop_reason = "channel"

    def __init__(self, channel: str, message: str) -> None:
        super().__init__(channel, message)
        self.channel, self.message = channel, message

    def __str__(self) -> str:
        return f"channel {self.channel}: {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[ProducerError], args: tuple[Any, ...], state: dict[str, Any]) -> ProducerError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class TransactionStateError(ChannelError, RuntimeError):
    """Raised when a transaction's methods are called in the wrong order, such as ``put`` after ``commit``."""


class TransactionFullError(ChannelError):
    """Raised when a transaction has more puts, or takes, than ``transaction_capacity``.

    :ivar capacity: that limit.
    """

    def __init__(self, channel: str, what: str, capacity: int) -> None:
        advice = "commit more often, or raise transaction_capacity"
        most = counted(capacity, what.removesuffix("s"))
        super().__init__(channel, f"a transaction holds at most {most} (transaction_capacity): {advice}")
        self.capacity = capacity


class ChannelFullError(ChannelError, TimeoutError):
    """Raised when a commit found no capacity within ``keep_alive``; nothing was stored, and the transaction is open.

    :ivar size: events in the channel.
    :ivar capacity: events that it can hold; 0 if these are not limited.
    :ivar used_bytes: bytes in the channel.
    :ivar byte_capacity: bytes that it can hold; None for no limit.
    :ivar wanted: events to store.
    :ivar wanted_bytes: their bytes.
    :ivar last_take_age: seconds since the last committed take; None if there was none.
    :ivar waited: seconds.
    :ivar never: True if they would not fit into the empty channel.
    """

    def __init__(
        self,
        channel: str,
        *,
        size: int,
        capacity: int,
        used_bytes: int,
        byte_capacity: int | None,
        wanted: int,
        wanted_bytes: int,
        last_take_age: float | None,
        waited: float,
        never: bool | None = None,
    ) -> None:
        last = "no take was committed yet" if last_take_age is None else f"the last take was {last_take_age:.1f} s ago"
        beyond = wanted > capacity or (byte_capacity is not None and wanted_bytes > byte_capacity)
        self.never = beyond if never is None else never
        advice = (
            "It can never fit: put less, or raise the capacity" if self.never else "Take faster, or raise the capacity"
        )
        limit = "no limit" if byte_capacity is None else counted(byte_capacity, "byte")
        held = f"{size} of {counted(capacity, 'event')} (capacity)" if capacity else counted(size, "event")
        message = (
            f"no room within {waited:.3f} s (keep_alive) for {counted(wanted, 'event')} of "
            f"{counted(wanted_bytes, 'byte')}: it holds {held} and {counted(used_bytes, 'byte')} of {limit} "
            f"(byte_capacity); {last}. {advice}; commit again or roll back"
        )
        super().__init__(channel, message)
        self.size, self.capacity, self.used_bytes, self.byte_capacity = size, capacity, used_bytes, byte_capacity
        self.wanted, self.wanted_bytes = wanted, wanted_bytes
        self.last_take_age, self.waited = last_take_age, waited

    def after(self, waited: float) -> ChannelFullError:
        """Return a copy with a different wait time."""
        return ChannelFullError(
            self.channel,
            size=self.size,
            capacity=self.capacity,
            used_bytes=self.used_bytes,
            byte_capacity=self.byte_capacity,
            wanted=self.wanted,
            wanted_bytes=self.wanted_bytes,
            last_take_age=self.last_take_age,
            waited=waited,
            never=self.never,
        )


class ChannelClosedError(ChannelError, RuntimeError):
    """Raised when the channel is closed, or belongs to the parent of this process."""


class ChannelLockedError(ChannelError):
    """Raised when another channel, in this process or another one, owns the directory."""


class ChannelFormatError(ChannelError, ValueError):
    """Raised when the directory, or a file in it, is not a channel's, or is of a newer version."""


class ChannelKeyError(ChannelError):
    """Raised when the key of encrypted segments is missing or wrong.

    :ivar key_id: the id of the key.
    """

    def __init__(self, channel: str, key_id: str, message: str) -> None:
        super().__init__(channel, message)
        self.key_id = key_id


class ChannelIOError(ChannelError, OSError):
    """Raised when the disk failed; the call had no effect."""

    def __init__(self, channel: str, message: str, number: int = errno.EIO) -> None:
        super().__init__(channel, message)
        self.errno = number


class DiskFullError(ChannelIOError):
    """Raised when the disk has too little free space for a put. Takes, rollbacks and deletions still work.

    :ivar free: bytes free on the disk.
    :ivar wanted: bytes that must be free for the put.
    """

    def __init__(self, channel: str, free: int, wanted: int, directory: str) -> None:
        message = (
            f"the disk of {directory} has {counted(free, 'byte')} free, and a put needs {wanted} (its own bytes plus "
            "minimum_free_space, or the size of a checkpoint): free some space, or let the channel drain"
        )
        super().__init__(channel, message, errno.ENOSPC)
        self.free, self.wanted = free, wanted


class AttemptError(ProducerError):
    """Base of the errors of one attempt to deliver a batch.

    :cvar retriable: True if the default policy tries again.
    :cvar max_consecutive: maximum number of consecutive retries of this class, besides ``retries``; None for no such
        limit.
    :cvar immediate: True if the next attempt needs no backoff.
    :ivar code: the server's error code, or one of this package's own (``RequestError``, ``BadResponse``, …).
    :ivar message: the message of the server or the system.
    :ivar http_status: the HTTP status; None if no answer came.
    :ivar request_id: the server's request id, or an empty string.
    :ivar may_have_been_stored: True if the request was sent completely, and no answer says whether it was stored.
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
    """Base of temporary failures: another attempt may succeed."""

    retriable = True


class NetworkError(RetriableError):
    """Raised when no usable answer came: refused, reset, timed out, name not resolved."""


class UnreachableError(NetworkError):
    """Raised when nothing of the request was sent, so that nothing can have been stored.

    The connection was refused or timed out, the name was not resolved, TLS failed, or a proxy refused.
    """


class ServerError(RetriableError):
    """Raised when the server failed (5xx), or returned an invalid answer."""


class CredentialsError(RetriableError):
    """Raised when the credentials provider raised, hung, or returned something else than credentials."""


class NumberNotNotedError(RetriableError):
    """Raised when the channel could not record an idempotent batch's number; the batch was not sent."""


class UnauthorizedError(RetriableError):
    """Raised when the server refused the credentials; they are refreshed before the next attempt."""

    max_consecutive = 3


class ClockSkewError(RetriableError):
    """Raised when the server refused the request's time. The next attempt uses the time of the server's ``Date``
    header.
    """

    max_consecutive = 1
    immediate = True


class QuotaExceededError(RetriableError):
    """Raised when the server refused the request for a quota; only that logstore is throttled."""


class PermanentError(AttemptError):
    """Base of permanent failures: every other attempt would fail, too."""


class RejectedError(PermanentError):
    """Raised when the server refused the request's content: parameters, names, encoding, permissions."""


class InvalidSequenceError(RejectedError):
    """Raised when the sequence number is not above the last one that the server accepted for the hash key."""


class MisconfiguredError(RejectedError):
    """Raised for a refusal that an operator can fix outside of this program.

    Examples are an unknown access key, a permission, a missing project or logstore, a missing certificate bundle, and a
    proxy that wants a password. With a durable channel the records wait until it is fixed.
    """


class BodyTooLargeError(PermanentError):
    """Raised when the server found the request too large; a batch of several records is split in two."""


class ProjectNotConfiguredError(MisconfiguredError):
    """Raised when the record's project has no ``ProjectConfig`` in this producer."""


class DeliveryAbandonedError(PermanentError):
    """Raised when this side abandoned the batch: ``close`` reached its deadline, or the process was forked."""


class InternalError(PermanentError):
    """Raised for an unexpected exception inside a stage: the record is failed, not lost silently."""
