"""The errors of ``producer ship``, drawn as a tree::

SparkJobError
├── JavaNotFoundError        no Java 17 or newer to start Spark with
├── SparkStartError          Java ended before Spark could be used
├── InputError               a path that cannot be shipped: missing, unreadable, not a file
├── FileChangedError         permanent: a file shrank or vanished between planning and reading, or is damaged
├── FileUnreadableError      temporary: a file cannot be read
└── LinesRefusedError        permanent: LogHub rejects lines for their content
"""

from __future__ import annotations

from ..spark.errors import DeliveryFailedError, SparkJobError


class JavaNotFoundError(SparkJobError):
    """Raised when there is no Java that can run Spark."""


class SparkStartError(SparkJobError):
    """Raised when Java ended before Spark could be used."""


class InputError(SparkJobError):
    """Raised when a named path cannot be shipped."""


class FileChangedError(SparkJobError):
    """Raised when a file differs from the one that was planned, or cannot be decompressed to its end."""


class FileUnreadableError(SparkJobError):
    """Raised when a file cannot be read; another attempt may succeed."""


class LinesRefusedError(DeliveryFailedError):
    """Raised when LogHub rejects lines for their content; no further attempt can succeed."""
