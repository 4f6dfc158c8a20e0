"""The errors of the Spark side, drawn as a tree::

    SparkJobError
    ├── DeliveryFailedError      records of a partition were not acknowledged
    └── MalformedValueError      a field that is not of its column's type, with mode=FAILFAST

Spark carries only the text of a worker's exception to the driver, so each message says everything by itself. A text
that UTF-8 cannot carry would never arrive, and the driver would wait for it for ever: a name in it is made readable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..model.errors import ProducerError
from ..text.printable import readable

#: What a worker says that cannot import the package; its interpreter belongs into it.
WITHOUT_PACKAGE = (
    "the Python of Spark's workers, {}, has no package producer: let Spark run the one that has it "
    "(producer.spark.session() does; or set PYSPARK_PYTHON to its path before Spark starts), or install the package "
    "there"
)


class SparkJobError(ProducerError):
    """What every error of this package's Spark side is.

    :param message: may hold any path.
    """

    def __init__(self, message: str) -> None:
        super().__init__(readable(message))


class DeliveryFailedError(SparkJobError):
    """Some records of a partition were not acknowledged; the task fails so that Spark runs it again."""


class MalformedValueError(SparkJobError):
    """A field of a log is not of the type that the schema gives its column."""


@contextmanager
def said_in_the_first_line() -> Iterator[None]:
    """Have Spark show the text of our errors at once, instead of under the lines of a traceback.

    A worker writes the text of an exception to the driver, and ends. It leaves the traceback out where a variable of
    its environment says so. Our errors say by themselves what is wrong; others keep their traceback.
    """
    try:
        yield
    except ProducerError:
        if _is_worker():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def _is_worker() -> bool:
    """Return True in a process that Spark has started: ``python -m pyspark.daemon`` and its like."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith(("pyspark.", "producer."))
