"""The reading half of ``format("loghub")``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..options import READ_OPTIONS
from .batch import FilteringQueryReader, FilteringReader, LogHubReader
from .plan import ReadPlan
from .query import QueryReader
from .schema import CURSOR, default_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

__all__ = ["CURSOR", "READ_OPTIONS", "batch_reader", "default_schema", "stream_reader"]


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """Make the reader of a batch.

    :param options: the options from Spark.
    :param schema: the user's schema, or :func:`default_schema`.
    :raises ConfigError: an option or the schema is invalid.
    """
    plan = ReadPlan.of(options, schema)
    if plan.query is not None:
        return FilteringQueryReader(plan) if plan.push_filters else QueryReader(plan)
    return FilteringReader(plan) if plan.push_filters else LogHubReader(plan)


def stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """Make the reader of a streaming query; needs PySpark 4.2.

    :param options: the options from Spark.
    :param schema: the user's schema, or :func:`default_schema`.
    :raises ConfigError: an option or the schema is invalid.
    """
    from .stream import LogHubStreamReader  # its imports need PySpark 4.2

    return LogHubStreamReader(ReadPlan.of(options, schema))
