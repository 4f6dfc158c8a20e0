"""Provide the data source ``format("loghub")`` to Spark.

Spark imports every module whose name begins with ``pyspark_``. One that raises at import hides the data sources of all
others. So this one imports nothing that may be missing. The implementation is imported at first use, and reports a
missing package then.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """The data source ``loghub``, a wrapper of ``producer.spark.datasource.LogHubSource``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "loghub"

    def _source(self) -> Any:
        from producer.spark.datasource import LogHubSource

        return LogHubSource(self.options)

    def schema(self) -> Any:
        return self._source().schema()

    def writer(self, schema: Any, overwrite: bool) -> Any:
        return self._source().writer(schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return self._source().streamWriter(schema, overwrite)

    def reader(self, schema: Any) -> Any:
        return self._source().reader(schema)

    def streamReader(self, schema: Any) -> Any:
        return self._source().streamReader(schema)
