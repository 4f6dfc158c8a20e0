"""Every error of the package, as one tree.

::

    ProducerError                      the base: ``except ProducerError`` catches whatever this package raises
     ├── ConfigError                   a wrong option: its name, the rule, the value
     ├── InvalidArgumentError          a wrong argument of ``send``, such as a key that is not text
     │    ├── LogSizeTooLargeError     one log (or one list) larger than a limit: both numbers
     │    └── MaxBatchCountExceedError more logs in one list than one batch may hold
     ├── SendTimeoutError              no memory, or no room in the channel, within ``max_block_ms``
     ├── ProducerClosedError           ``send`` after ``close`` began
     ├── StreamStoppedError            ``send`` to an ordered stream behind a record that failed for good
     ├── FlushTimeoutError             ``flush`` did not finish in time: how many batches are left
     ├── CloseTimeoutError             ``close`` did not finish in time: how many records were failed
     ├── TargetError                   ``check`` found what is wrong with a target: the option, and a sentence
     ├── ResultFailedError             what a future raises: carries the ``Result``
     ├── CompressionError              a body that does not compress or decompress
     ├── ChannelError                  a channel could not do what was asked; its name, and what to do
     │    ├── TransactionStateError    a transaction's methods called in the wrong order
     │    ├── TransactionFullError     more puts or takes than ``transaction_capacity``
     │    ├── ChannelFullError         no room within ``keep_alive``: size, capacity, what was asked
     │    ├── ChannelClosedError       used after ``close``, or in a forked child
     │    ├── ChannelLockedError       the directory belongs to somebody else: who
     │    ├── ChannelFormatError       the directory or a file in it is of another kind, or of a newer version
     │    ├── ChannelKeyError          an encryption key is missing or wrong: its id
     │    └── ChannelIOError           the disk failed; what was asked did not happen
     │         └── DiskFullError       too little free space for puts: how much is free, how much is wanted
     └── AttemptError                  one attempt to deliver a batch failed (seen in ``Attempt``, raised by sinks)
          ├── RetriableError           transient: retried with backoff
          │    ├── NetworkError        no usable answer came
          │    │    └── UnreachableError  not even a connection: the project is held back
          │    ├── ServerError         the server failed (5xx), or its answer made no sense
          │    ├── CredentialsError    the credentials provider failed
          │    ├── NumberNotNotedError the channel could not note an idempotent batch before it is sent
          │    ├── UnauthorizedError   refused credentials: refreshed, retried a bounded number of times
          │    ├── ClockSkewError      refused time: the clock's offset is learned, retried at once
          │    └── QuotaExceededError  slowed down by the server: that logstore is held back
          └── PermanentError           retrying cannot help
               ├── RejectedError       the server refused the request for what it says
               │    ├── InvalidSequenceError  … for its sequence number: not above the last one of the hash key
               │    └── MisconfiguredError  … or for what an operator can mend: key, permission, project, logstore
               │         └── ProjectNotConfiguredError  no ``ProjectConfig`` for the record's project
               ├── BodyTooLargeError   the server found the request too large: the batch is split in two
               ├── DeliveryAbandonedError     given up by this side: closed at its deadline, or forked away
               └── InternalError       a bug of this package or of a plugged-in part

Whether an attempt may be repeated is a property of the class, so that a user's own ``RetryPolicy`` can use it too. The
file is long because the tree is one.
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
    """The base of every error that this package raises.

    :ivar accepted: where ``send_many`` raised half-way: the futures of what it had accepted, in order.
    :ivar accepted_logs: how many logs those are; the logs after them were not accepted.
    :ivar drop_reason: the name in ``stats().dropped`` of logs that an integration drops because of the error.
    """

    accepted: Sequence[Future[Result]] = ()
    accepted_logs = 0
    drop_reason = "error"


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
        return f"{self.name}: {self.rule}" + ("" if self.value is self.name else f", got {described(self.value)}")


class InvalidArgumentError(ProducerError, ValueError):
    """An argument of ``send`` that cannot become a log."""

    drop_reason = "invalid"


class LogSizeTooLargeError(InvalidArgumentError):
    """A log, or a list of logs that must travel together, is larger than a limit.

    :ivar size: what it needs, bytes.
    :ivar limit: what is allowed, bytes.
    """

    drop_reason = "too_large"

    def __init__(self, size: int, limit: int, what: str) -> None:
        super().__init__(size, limit, what)
        self.size, self.limit, self.what = size, limit, what

    def __str__(self) -> str:
        return f"{self.what}: {counted(self.size, 'byte')}, the limit is {counted(self.limit, 'byte')}"


class MaxBatchCountExceedError(InvalidArgumentError):
    """A list holds more logs than one batch may carry.

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
    """No memory became free within ``max_block_ms``; with a channel, no room in it.

    :ivar limit: ``total_size_in_bytes``; of a channel its ``byte_capacity``, 0 for no limit.
    :ivar used: bytes taken at that moment.
    :ivar wanted: bytes this send needed.
    :ivar oldest_age: age of the oldest record that is not settled, seconds; None if there is none.
    :ivar waited: how long this send waited, seconds.
    :ivar text: the message, where it is not about memory.
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
            f"{counted(self.limit, 'byte')} (total_size_in_bytes) used, the oldest record waits for {age}. "
            "Is the server slow or down? Raise total_size_in_bytes or max_block_ms, or send less."
        )


class ProducerClosedError(ProducerError, RuntimeError):
    """``send`` was called after ``close`` began."""

    drop_reason = "closed"


class StreamStoppedError(ProducerError, RuntimeError):
    """A batch of an ordered stream failed for good: nothing behind it is sent until ``Stream.resume()``.

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
            f"stream {stream.project}/{stream.logstore} topic {stream.topic!r} is stopped: a batch of it failed for "
            f"good after {counted(first.attempt_count, 'attempt')}: {first.error_code}: {first.error_message}. Nothing "
            "behind it is sent, so that no hole goes unnoticed: see to what failed, then call resume() on the stream"
        )


class FlushTimeoutError(ProducerError, TimeoutError):
    """``flush`` did not finish in time.

    :ivar remaining: batches accepted before the flush that are not settled yet.
    :ivar stored: events in the channel at that moment; 0 without one.
    """

    def __init__(self, remaining: int, timeout: float, stored: int = 0) -> None:
        super().__init__(remaining, timeout, stored)
        self.remaining, self.timeout, self.stored = remaining, timeout, stored

    def __str__(self) -> str:
        stored = f", and the channel holds {counted(self.stored, 'event')}," if self.stored else ""
        left = counted(self.remaining, "batch is still in flight", "batches are still in flight")
        return f"flush: {left}{stored} after {self.timeout:.3f} s; {'it goes' if self.remaining == 1 else 'they go'} on"


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
        failed = counted(self.failed_records, "record was failed", "records were failed")
        return f"close: not done within {self.timeout:.3f} s; {failed}{threads}"


class TargetError(ProducerError):
    """``check`` found that logs would not arrive.

    :ivar problem: what is at fault: ``endpoint``, ``project``, ``logstore``, ``access_key_id``, ``access_key_secret``,
        ``security_token``, ``credentials``, ``region``, ``clock``, ``http`` or ``server``. ``__cause__`` is the
        :class:`AttemptError`.
    """

    def __init__(self, problem: str, message: str) -> None:
        super().__init__(problem, message)
        self.problem, self.message = problem, message

    def __str__(self) -> str:
        return self.message


class ResultFailedError(ProducerError):
    """The record was not delivered.

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
    """A body that cannot be compressed or decompressed as asked."""


class ChannelError(ProducerError):
    """The base of what channels raise.

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
    """A transaction's methods were called in the wrong order, such as ``put`` after ``commit``."""


class TransactionFullError(ChannelError):
    """One transaction holds no more puts, or takes, than ``transaction_capacity``.

    :ivar capacity: that number.
    """

    def __init__(self, channel: str, what: str, capacity: int) -> None:
        advice = "commit more often, or raise transaction_capacity"
        most = counted(capacity, what.removesuffix("s"))
        super().__init__(channel, f"a transaction holds at most {most} (transaction_capacity): {advice}")
        self.capacity = capacity


class ChannelFullError(ChannelError, TimeoutError):
    """No room for a commit within ``keep_alive``; nothing was stored, and the transaction is still open.

    :ivar size: events in the channel.
    :ivar capacity: events that it holds; 0 where they are not what is limited.
    :ivar used_bytes: bytes in the channel.
    :ivar byte_capacity: bytes that it holds; None for no limit.
    :ivar wanted: events that were asked for.
    :ivar wanted_bytes: their bytes.
    :ivar last_take_age: seconds since the last take that succeeded; None if there was none.
    :ivar waited: seconds.
    :ivar never: more was asked for than the channel lets in when it is empty.
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
        """The same of who has waited in another way, and for so long."""
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
    """The channel was closed, or belongs to the parent of this process."""


class ChannelLockedError(ChannelError):
    """Another channel, in this process or another one, owns the directory."""


class ChannelFormatError(ChannelError, ValueError):
    """The directory, or a file in it, is not this package's, or was written by a newer version of it."""


class ChannelKeyError(ChannelError):
    """A key that encrypted segments need is missing or wrong.

    :ivar key_id: its id; never the key.
    """

    def __init__(self, channel: str, key_id: str, message: str) -> None:
        super().__init__(channel, message)
        self.key_id = key_id


class ChannelIOError(ChannelError, OSError):
    """The disk failed; what was asked did not happen."""

    def __init__(self, channel: str, message: str, number: int = errno.EIO) -> None:
        super().__init__(channel, message)
        self.errno = number


class DiskFullError(ChannelIOError):
    """Too little free space for puts; takes, rollbacks and deletions go on.

    :ivar free: bytes free on the disk.
    :ivar wanted: bytes that must be free for the put.
    """

    def __init__(self, channel: str, free: int, wanted: int, directory: str) -> None:
        message = (
            f"the disk of {directory} has {counted(free, 'byte')} free, and a put wants {wanted} (its own bytes and "
            "minimum_free_space, or what a checkpoint takes): free some space, or let the channel drain"
        )
        super().__init__(channel, message, errno.ENOSPC)
        self.free, self.wanted = free, wanted


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
    """Nothing of the request was sent: connection refused or not in time, name not resolved, TLS not agreed on, no way
    through a proxy. Nothing can have been stored.
    """


class ServerError(RetriableError):
    """The server failed (5xx), or answered what no LogHub answers."""


class CredentialsError(RetriableError):
    """The credentials provider raised, hung, or returned something else than credentials."""


class NumberNotNotedError(RetriableError):
    """The channel could not write down under which number a batch of an idempotent stream is sent; so it was not."""


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


class InvalidSequenceError(RejectedError):
    """The request's sequence number is not above the last one that the server accepted for its hash key."""


class MisconfiguredError(RejectedError):
    """A refusal that somebody can mend outside of this program: an unknown access key, a permission, a project or
    logstore that does not exist, a certificate bundle that is not there, a proxy that wants a password. Behind a
    channel the records wait for that.
    """


class BodyTooLargeError(PermanentError):
    """The server found the request too large; a batch of several records is split in two, each of which is sent."""


class ProjectNotConfiguredError(MisconfiguredError):
    """The record's project has no ``ProjectConfig`` in this producer."""


class DeliveryAbandonedError(PermanentError):
    """This side gave up: ``close`` reached its deadline, or the process was forked."""


class InternalError(PermanentError):
    """An unexpected exception inside a stage; the record is failed rather than lost."""
