"""``format("loghub")``: the data source that Spark sees.

Spark finds it by the module ``pyspark_loghub``, where the package is installed on the driver; where it travels by
``addPyFile``, :func:`register` makes it known. It is made and asked in processes of Spark's own beside the driver, and
imports what it needs when it is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from .errors import WITHOUT_PACKAGE, said_in_the_first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The name for ``format`` and ``USING``.
FORMAT = "loghub"


class LogHubSource(DataSource):
    """Reads and writes logstores; ``docs/spark/write.md`` has the options."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return FORMAT

    def schema(self) -> StructType:
        """What is read where the user gives no schema."""
        from .reading import CURSOR, default_schema

        return default_schema(without=CURSOR if "query" in self.options else "")

    @said_in_the_first_line()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch."""
        from .writing.writers import LogHubWriter

        return LogHubWriter(dict(self.options), schema, overwrite=overwrite)

    @said_in_the_first_line()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer of a streaming query."""
        from .writing.writers import LogHubStreamWriter

        return LogHubStreamWriter(dict(self.options), schema, overwrite=overwrite)

    @said_in_the_first_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch."""
        from .reading import batch_reader

        return batch_reader(dict(self.options), schema)

    @said_in_the_first_line()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query."""
        from .reading import stream_reader

        return stream_reader(dict(self.options), schema)


def register(spark: SparkSession) -> None:
    """Make ``format("loghub")`` known to a session.

    Needed only where the package is not installed on the driver but shipped with ``addPyFile`` or ``--py-files``.

    :param spark: the session, of a cluster or of Spark Connect.
    """
    spark.dataSource.register(travelling_source())


def travelling_source() -> type[DataSource]:
    """:class:`LogHubSource` as a class that is pickled with its code: where Spark's Python has no package ``producer``,
    it can still say what to do about it.
    """

    class LogHub(DataSource):
        @classmethod
        def name(cls) -> str:
            return "loghub"

        def _source(self) -> DataSource:
            import sys  # of the process that it travels to

            try:
                from producer.spark.datasource import LogHubSource
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] != "producer":
                    raise
                raise ImportError(WITHOUT_PACKAGE.format(sys.executable)) from error
            return LogHubSource(self.options)

        def schema(self) -> StructType | str:
            return self._source().schema()

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            return self._source().writer(schema, overwrite)

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            return self._source().streamWriter(schema, overwrite)

        def reader(self, schema: StructType) -> DataSourceReader:
            return self._source().reader(schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return self._source().streamReader(schema)

    return LogHub
