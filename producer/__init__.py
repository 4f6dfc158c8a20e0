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

TYPE_CHECKING = False  # as in typing, whose import takes longer than a command may need until it handles Ctrl-C
if TYPE_CHECKING:
    from .channels import FileChannel, MemoryChannel, ProcessFileChannel, SpillableChannel
    from .client.at_exit import flush_all, install_signal_handlers
    from .client.producer import Producer
    from .client.stream import Stream
    from .model.config import HttpConfig, ProducerConfig, ProjectConfig, RetryPolicy
    from .model.credentials import Credentials, EnvironmentCredentials, StaticCredentials
    from .model.errors import (
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
    from .model.futures import SendFuture
    from .model.interfaces import (
        Channel,
        ChannelStats,
        CredentialsProvider,
        Delivery,
        EndpointStats,
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
    from .model.metrics import DestinationStats, HeldStats, LastError, LatencyStats, Stats, StreamStats
    from .model.records import LogItem, StreamKey
    from .model.results import Attempt, Callback, Result, Undelivered
    from .model.sequence import SequenceKey
    from .sinks import FileSink, StdoutSink

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
    "EndpointStats",
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
    "LastError",
    "LatencyStats",
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
    "Undelivered",
    "UnreachableError",
    "__version__",
    "flush_all",
    "install_signal_handlers",
]

# The module of each name, except for the errors. A name is imported at its first use: a program that only sends logs
# imports no channel, and one that only uses the errors imports nothing that sends.
_PLACES = {
    "Attempt": "model.results",
    "Callback": "model.results",
    "Channel": "model.interfaces",
    "ChannelStats": "model.interfaces",
    "Credentials": "model.credentials",
    "CredentialsProvider": "model.interfaces",
    "Delivery": "model.interfaces",
    "DestinationStats": "model.metrics",
    "EndpointStats": "model.interfaces",
    "EnvironmentCredentials": "model.credentials",
    "Event": "model.interfaces",
    "FileChannel": "channels",
    "FileSink": "sinks",
    "FileStats": "model.interfaces",
    "HeldStats": "model.metrics",
    "HttpConfig": "model.config",
    "LastError": "model.metrics",
    "LatencyStats": "model.metrics",
    "LogItem": "model.records",
    "MemoryChannel": "channels",
    "Payload": "model.interfaces",
    "ProcessFileChannel": "channels",
    "Producer": "client.producer",
    "ProducerConfig": "model.config",
    "ProjectConfig": "model.config",
    "Receipt": "model.interfaces",
    "Record": "model.interfaces",
    "Result": "model.results",
    "RetryPolicy": "model.config",
    "SendFuture": "model.futures",
    "SequenceId": "model.interfaces",
    "SequenceKey": "model.sequence",
    "Sink": "model.interfaces",
    "SpillableChannel": "channels",
    "StaticCredentials": "model.credentials",
    "Stats": "model.metrics",
    "StdoutSink": "sinks",
    "Stored": "model.interfaces",
    "Stream": "client.stream",
    "StreamKey": "model.records",
    "StreamStats": "model.metrics",
    "Transaction": "model.interfaces",
    "Undelivered": "model.results",
    "flush_all": "client.at_exit",
    "install_signal_handlers": "client.at_exit",
}


if not TYPE_CHECKING:  # otherwise a type checker would accept any misspelt name

    def __getattr__(name: str) -> object:
        """Import the module of a name and keep the value as an ordinary attribute."""
        if name == "__version__":
            value: object = _version()
        elif name in __all__:
            value = getattr(import_module(f".{_PLACES.get(name, 'model.errors')}", __name__), name)
        else:
            from .text.migration_hints import ELSEWHERE  # noqa: PLC0415  # only for a wrong name

            if name in ELSEWHERE:  # an AttributeError would lose its message in "from producer import"
                raise ImportError(f"{__name__!r} has no {name}; {ELSEWHERE[name]}", name=__name__)
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  (takes longer than all the rest)

    try:
        return version("loghub-producer")
    except PackageNotFoundError:  # imported from a source tree, or from an archive shipped to executors
        return "0.0.0"
