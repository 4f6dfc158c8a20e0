"""The errors of the Spark side, drawn as a tree::

    SparkJobError
    ├── DeliveryFailedError      records of a partition were not acknowledged
    └── MalformedValueError      a field that is not of its column's type, with mode=FAILFAST

Spark carries only the text of a worker's exception to the driver, so each message is complete by itself. A text that is
not valid UTF-8 would never arrive, and the driver would wait for ever. So messages escape such characters in names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..model.errors import ProducerError
from ..text.printable import readable

#: The message of a worker that cannot import the package; its argument is the interpreter.
WITHOUT_PACKAGE = (
    "the Python of Spark's workers, {}, has no package producer: install the package there, or let Spark run the "
    "Python that has it (call producer.spark.session(), or set PYSPARK_PYTHON to its path before Spark starts)"
)


class SparkJobError(ProducerError):
    """Base of the errors of the Spark connector.

    :param message: the message, which may contain any path.
    """

    def __init__(self, message: str) -> None:
        super().__init__(readable(message))


class DeliveryFailedError(SparkJobError):
    """Raised when records of a partition were not acknowledged; the task fails, so that Spark runs it again."""


class MalformedValueError(SparkJobError):
    """Raised when a field of a log does not match its column's type."""


@contextmanager
def hidden_traceback() -> Iterator[None]:
    """Hide the traceback of this package's errors, so that Spark shows their text first.

    A worker sends an exception's text to the driver, and ends. An environment variable hides the traceback. The
    package's errors explain themselves; others keep their traceback.
    """
    try:
        yield
    except ProducerError:
        if _is_worker():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def _is_worker() -> bool:
    """Return True in a process that Spark started, such as ``python -m pyspark.daemon``."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith(("pyspark.", "producer."))
