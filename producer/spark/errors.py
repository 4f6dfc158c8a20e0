"""The errors of the Spark side, drawn as a tree::

    SparkJobError
    ├── DeliveryFailedError      records of a partition were not acknowledged
    └── MalformedValueError      a field that is not of its column's type, with mode=FAILFAST

Spark carries only the text of a worker's exception to the driver, so each message says everything by itself. A text
that UTF-8 cannot carry would never arrive, and the driver would wait for it for ever: a name in it is made readable.
"""

from __future__ import annotations

from ..errors import ProducerError
from ..path_text import readable

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
