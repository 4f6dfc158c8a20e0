"""The data source of ``format("loghub")``.

Where the package is installed on the driver, Spark finds it by the module ``pyspark_loghub``. Where it is shipped by
``addPyFile``, :func:`register` registers it. Spark creates and calls it in processes of its own beside the driver, so
it imports modules only when a method needs them.
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

from .errors import WITHOUT_PACKAGE, hidden_traceback

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The name for ``format`` and ``USING``.
FORMAT = "loghub"


class LogHubSource(DataSource):
    """The data source that reads and writes logstores."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """Return the schema of a read without a schema of the user."""
        from .reading import CURSOR, default_schema

        return default_schema(without=CURSOR if "query" in self.options else "")

    @hidden_traceback()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from .writing.writers import LogHubWriter

        return LogHubWriter(dict(self.options), schema, overwrite=overwrite)

    @hidden_traceback()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from .writing.writers import LogHubStreamWriter

        return LogHubStreamWriter(dict(self.options), schema, overwrite=overwrite)

    @hidden_traceback()
    def reader(self, schema: StructType) -> DataSourceReader:
        from .reading import batch_reader

        return batch_reader(dict(self.options), schema)

    @hidden_traceback()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from .reading import stream_reader

        return stream_reader(dict(self.options), schema)


def register(spark: SparkSession) -> None:
    """Register ``format("loghub")`` in a session.

    This is needed only where the package is not installed on the driver, but shipped with ``addPyFile`` or
    ``--py-files``.

    :param spark: the session, of a cluster or of Spark Connect.
    """
    spark.dataSource.register(travelling_source())


def travelling_source() -> type[DataSource]:
    """Return a :class:`LogHubSource` class that is pickled with its code.

    So where Spark's Python lacks the package ``producer``, it can still raise an error that says what to do.
    """

    class LogHub(DataSource):
        @classmethod
        def name(cls) -> str:
            return "loghub"

        def _source(self) -> DataSource:
            import sys  # the worker's interpreter

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
