"""Where Spark finds ``format("loghub")``: it looks into every module whose name begins with ``pyspark_``.

One such module that raises when it is imported hides the data sources of all others. So this one imports nothing that
may be missing: what does the work is imported when it is asked, and says then what is wrong.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """The data source ``loghub``; ``producer.spark.datasource.LogHubSource`` does the work."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "loghub"

    def _source(self) -> Any:
        from producer.spark.datasource import LogHubSource

        return LogHubSource(self.options)

    def schema(self) -> Any:
        """As of ``LogHubSource``; likewise the others."""
        return self._source().schema()

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """Write a batch."""
        return self._source().writer(schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        """Write a stream."""
        return self._source().streamWriter(schema, overwrite)

    def reader(self, schema: Any) -> Any:
        """Read a batch."""
        return self._source().reader(schema)

    def streamReader(self, schema: Any) -> Any:
        """Read a stream."""
        return self._source().streamReader(schema)
