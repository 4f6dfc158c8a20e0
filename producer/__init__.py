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

from importlib.metadata import PackageNotFoundError, version

from .channels import MemoryChannel, SpillableChannel
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
    TransactionFullError,
    TransactionStateError,
    UnauthorizedError,
    UnreachableError,
)
from .interfaces import Channel, ChannelStats, CredentialsProvider, Event, FileStats, Stored, Transaction
from .metrics import Stats, StreamStats
from .numbering import SequenceKey
from .records import LogItem, StreamKey
from .results import Attempt, Callback, Result, SendFuture
from .stream import Stream

try:
    __version__ = version("loghub-producer")
except PackageNotFoundError:  # imported from a source tree, or from an archive shipped to executors
    __version__ = "0.0.0"

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
    "DeliveryAbandonedError",
    "DiskFullError",
    "EnvironmentCredentials",
    "Event",
    "FileStats",
    "FlushTimeoutError",
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
    "PermanentError",
    "Producer",
    "ProducerClosedError",
    "ProducerConfig",
    "ProducerError",
    "ProjectConfig",
    "ProjectNotConfiguredError",
    "QuotaExceededError",
    "RejectedError",
    "Result",
    "ResultFailedError",
    "RetriableError",
    "RetryPolicy",
    "SendFuture",
    "SendTimeoutError",
    "SequenceKey",
    "ServerError",
    "SpillableChannel",
    "StaticCredentials",
    "Stats",
    "Stored",
    "Stream",
    "StreamKey",
    "StreamStats",
    "StreamStoppedError",
    "Transaction",
    "TransactionFullError",
    "TransactionStateError",
    "UnauthorizedError",
    "UnreachableError",
    "__version__",
]
