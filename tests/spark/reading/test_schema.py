"""Schemas that can be read, and the errors of others."""

from typing import Any

import pytest
from pyspark.sql.types import (
    CalendarIntervalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from producer import ConfigError
from producer.spark.reading.schema import check_schema, default_schema


def of(*fields: tuple[Any, ...]) -> StructType:
    return StructType([StructField(*field) for field in fields])


@pytest.mark.parametrize(
    "schema",
    [
        default_schema(),
        of(("contents", MapType(StringType(), StringType(), False)), ("__time__", TimestampType(), False)),
        of(("anything", LongType()), ("__tag__:x", StringType()), ("Contents of mine", StringType())),
    ],
)
def test_a_schema_that_can_be_read_passes(schema: StructType) -> None:
    """Fixed columns in any order and choice, nullable or not, and any fields are accepted."""
    check_schema(schema)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (of(), "at least one column"),
        (of(("a", LongType()), ("a", StringType())), "each column once, got 'a'"),
        (of(("__time__", LongType())), "__time__ must be timestamp.*cast it after the read, got 'bigint'"),
        (of(("contents", MapType(StringType(), IntegerType()))), "contents must be map<string,string>"),
        (of(("__TIME__", TimestampType())), "must spell __time__ in lower case"),
        (of(("__pack_id__", StringType(), False)), "__pack_id__ must be nullable"),
        (of(("a", CalendarIntervalType())), "column a has a type that text cannot become.*use string, tinyint"),
    ],
)
def test_a_schema_that_cannot_be_read_is_an_error(schema: StructType, words: str) -> None:
    """A schema that cannot be read is refused with the column and what to do."""
    with pytest.raises(ConfigError, match=words):
        check_schema(schema)
