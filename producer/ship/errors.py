"""The errors of the application that ships log files, drawn as a tree::

SparkJobError
├── JavaNotFoundError        no Java 17 or newer to start Spark with
├── InputError               a path that cannot be shipped: missing, unreadable, not a file
├── FileChangedError         a file shrank or vanished between planning and reading, or is damaged: permanently
├── FileUnreadableError      a file cannot be read at this moment
└── LinesRefusedError        LogHub refuses lines for what is in them: permanently
"""

from __future__ import annotations

from ..spark.errors import DeliveryFailedError, SparkJobError


class JavaNotFoundError(SparkJobError):
    """There is no Java that can run Spark."""


class SparkStartError(SparkJobError):
    """Java was started, and ended before Spark could be used."""


class InputError(SparkJobError):
    """A path that was named cannot be shipped."""


class FileChangedError(SparkJobError):
    """A file is no longer what it was when the job was planned, or cannot be decompressed to its end."""


class FileUnreadableError(SparkJobError):
    """A file cannot be read at this moment; another attempt may."""


class LinesRefusedError(DeliveryFailedError):
    """LogHub refuses lines for what is in them, whatever the attempt."""
