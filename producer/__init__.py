"""An asynchronous batching producer for LogHub (Aliyun Log Service).

A tour::

    from producer import Producer, ProjectConfig

    project = ProjectConfig("my-project", endpoint="https://cn-hangzhou.log.aliyuncs.com", credentials=...)
    with Producer(project) as producer:
        future = producer.send("my-project", "app-log", {"level": "INFO", "message": "hello"}, topic="web")
        print(future.result(timeout=10))        # Result(successful=True, attempts=(Attempt(...),), ...)
        stream = producer.stream("my-project", "app-log", topic="web")      # the fast path
        stream.send({"level": "INFO"}, callback=lambda result: print(result.successful))
        producer.flush(timeout=30)
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as typing has it, which takes longer to import than a command to be there for a Ctrl-C
if TYPE_CHECKING:
    from .channels import FileChannel, MemoryChannel, ProcessFileChannel, SpillableChannel
    from .client import Producer
    from .config import HttpConfig, ProducerConfig, ProjectConfig, RetryPolicy
    from .credentials import Credentials, EnvironmentCredentials, StaticCredentials
    from .errors import (
        AttemptError,
        BodyTooLargeError,
        ChannelClosedError,
        ChannelError,
        ChannelFormatError,
        ChannelFullError,
        ChannelIOError,
        ChannelKeyError,
        ChannelLockedError,
        ClockSkewError,
        CloseTimeoutError,
        CompressionError,
        ConfigError,
        CredentialsError,
        DeliveryAbandonedError,
        DiskFullError,
        FlushTimeoutError,
        InternalError,
        InvalidArgumentError,
        InvalidSequenceError,
        LogSizeTooLargeError,
        MaxBatchCountExceedError,
        MisconfiguredError,
        NetworkError,
        PermanentError,
        ProducerClosedError,
        ProducerError,
        ProjectNotConfiguredError,
        QuotaExceededError,
        RejectedError,
        ResultFailedError,
        RetriableError,
        SendTimeoutError,
        ServerError,
        StreamStoppedError,
        TargetError,
        TransactionFullError,
        TransactionStateError,
        UnauthorizedError,
        UnreachableError,
    )
    from .futures import SendFuture
    from .interfaces import (
        Channel,
        ChannelStats,
        CredentialsProvider,
        Delivery,
        Event,
        FileStats,
        Payload,
        Receipt,
        Record,
        SequenceId,
        Sink,
        Stored,
        Transaction,
    )
    from .metrics import DestinationStats, HeldStats, Stats, StreamStats
    from .numbering import SequenceKey
    from .records import LogItem, StreamKey
    from .results import Attempt, Callback, Result
    from .signals import install_signal_handlers
    from .sinks import FileSink, StdoutSink
    from .stream import Stream

    __version__: str

__all__ = [
    "Attempt",
    "AttemptError",
    "BodyTooLargeError",
    "Callback",
    "Channel",
    "ChannelClosedError",
    "ChannelError",
    "ChannelFormatError",
    "ChannelFullError",
    "ChannelIOError",
    "ChannelKeyError",
    "ChannelLockedError",
    "ChannelStats",
    "ClockSkewError",
    "CloseTimeoutError",
    "CompressionError",
    "ConfigError",
    "Credentials",
    "CredentialsError",
    "CredentialsProvider",
    "Delivery",
    "DeliveryAbandonedError",
    "DestinationStats",
    "DiskFullError",
    "EnvironmentCredentials",
    "Event",
    "FileChannel",
    "FileSink",
    "FileStats",
    "FlushTimeoutError",
    "HeldStats",
    "HttpConfig",
    "InternalError",
    "InvalidArgumentError",
    "InvalidSequenceError",
    "LogItem",
    "LogSizeTooLargeError",
    "MaxBatchCountExceedError",
    "MemoryChannel",
    "MisconfiguredError",
    "NetworkError",
    "Payload",
    "PermanentError",
    "ProcessFileChannel",
    "Producer",
    "ProducerClosedError",
    "ProducerConfig",
    "ProducerError",
    "ProjectConfig",
    "ProjectNotConfiguredError",
    "QuotaExceededError",
    "Receipt",
    "Record",
    "RejectedError",
    "Result",
    "ResultFailedError",
    "RetriableError",
    "RetryPolicy",
    "SendFuture",
    "SendTimeoutError",
    "SequenceId",
    "SequenceKey",
    "ServerError",
    "Sink",
    "SpillableChannel",
    "StaticCredentials",
    "Stats",
    "StdoutSink",
    "Stored",
    "Stream",
    "StreamKey",
    "StreamStats",
    "StreamStoppedError",
    "TargetError",
    "Transaction",
    "TransactionFullError",
    "TransactionStateError",
    "UnauthorizedError",
    "UnreachableError",
    "__version__",
    "install_signal_handlers",
]

# Where each name is, but for the errors. A name is imported when it is asked for: a program that only sends logs waits
# for no channel, and one that only needs the errors for nothing that sends.
_PLACES = {
    "Attempt": "results",
    "Callback": "results",
    "Channel": "interfaces",
    "ChannelStats": "interfaces",
    "Credentials": "credentials",
    "CredentialsProvider": "interfaces",
    "Delivery": "interfaces",
    "DestinationStats": "metrics",
    "EnvironmentCredentials": "credentials",
    "Event": "interfaces",
    "FileChannel": "channels",
    "FileSink": "sinks",
    "FileStats": "interfaces",
    "HeldStats": "metrics",
    "HttpConfig": "config",
    "LogItem": "records",
    "MemoryChannel": "channels",
    "Payload": "interfaces",
    "ProcessFileChannel": "channels",
    "Producer": "client",
    "ProducerConfig": "config",
    "ProjectConfig": "config",
    "Receipt": "interfaces",
    "Record": "interfaces",
    "Result": "results",
    "RetryPolicy": "config",
    "SendFuture": "futures",
    "SequenceId": "interfaces",
    "SequenceKey": "numbering",
    "Sink": "interfaces",
    "SpillableChannel": "channels",
    "StaticCredentials": "credentials",
    "Stats": "metrics",
    "StdoutSink": "sinks",
    "Stored": "interfaces",
    "Stream": "stream",
    "StreamKey": "records",
    "StreamStats": "metrics",
    "Transaction": "interfaces",
    "install_signal_handlers": "signals",
}

# Modules that stand in the documents by themselves: they are attributes of the package also before they are imported.
_MODULES = frozenset(
    {
        "channels",
        "client",
        "config",
        "credentials",
        "errors",
        "futures",
        "interfaces",
        "metrics",
        "records",
        "results",
        "stream",
    }
)


if not TYPE_CHECKING:  # or every misspelt name would pass for one of any type

    def __getattr__(name: str) -> object:
        """Import what is asked for; from then on it is an ordinary attribute."""
        if name in _MODULES:
            return import_module(f".{name}", __name__)
        if name == "__version__":
            value: object = _version()
        elif name in __all__:
            value = getattr(import_module(f".{_PLACES.get(name, 'errors')}", __name__), name)
        else:
            from .foreign_names import ELSEWHERE  # noqa: PLC0415

            if name in ELSEWHERE:  # "from producer import" tells nothing of an AttributeError
                raise ImportError(f"{__name__!r} has no {name}; {ELSEWHERE[name]}", name=__name__)
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  (takes longer than all the rest)

    try:
        return version("loghub-producer")
    except PackageNotFoundError:  # imported from a source tree, or from an archive shipped to executors
        return "0.0.0"
