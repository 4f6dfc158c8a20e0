"""The columns of ``spark.read.format("loghub")``: the fixed ones of every logstore, and those of the user."""

from __future__ import annotations

from typing import Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, MapType, StringType, StructField, StructType, TimestampType

from ...model.errors import ConfigError
from .values import TYPES, parser_of

TIME, TOPIC, SOURCE, TAGS, PACK_ID = "__time__", "__topic__", "__source__", "__tags__", "__pack_id__"
CONTENTS, CURSOR = "contents", "__cursor__"

_TEXTS = MapType(StringType(), StringType())

#: The columns of every logstore. Any other column of a schema is a field of the logs.
FIXED: dict[str, DataType] = {
    TIME: TimestampType(),
    TOPIC: StringType(),
    SOURCE: StringType(),
    TAGS: _TEXTS,
    PACK_ID: StringType(),
    CONTENTS: _TEXTS,
    CURSOR: StringType(),
}


def default_schema(*, without: str = "") -> StructType:
    """Return the schema of a read without a schema of the user.

    :param without: a column to leave out; empty for none.
    """
    return StructType([StructField(name, kind) for name, kind in FIXED.items() if name != without])


def check_schema(schema: StructType) -> None:
    """Check that every column can be read.

    :param schema: the schema of the user, or the default.
    :raises ConfigError: a column has a wrong type, occurs twice, or differs from a fixed one only in case.
    """
    if not schema.fields:
        raise ConfigError("schema", "must have at least one column", "none")
    seen: set[str] = set()
    for field in schema.fields:
        if field.name in seen:
            raise ConfigError("schema", "must have each column once", field.name)
        seen.add(field.name)
        _check_field(field)


def _check_field(field: StructField) -> None:
    fixed = FIXED.get(field.name)
    if fixed is None:
        _check_own(field)
    elif not _same(field.dataType, fixed):
        rule = f"the column {field.name} must be {fixed.simpleString()}: cast it after the read"
        raise ConfigError("schema", rule, field.dataType.simpleString())
    elif not field.nullable and field.name == PACK_ID:
        raise ConfigError("schema", f"the column {PACK_ID} must be nullable: not every producer sends one", "NOT NULL")


def _check_own(field: StructField) -> None:
    if field.name.lower() in FIXED:
        rule = f"must spell {field.name.lower()} in lower case; a field of the logs by that name is in {CONTENTS}"
        raise ConfigError("schema", rule, field.name)
    try:
        parser_of(field.dataType)
    except TypeError as error:
        rule = f"the column {field.name} has a type that text cannot become ({error}): use {TYPES}"
        raise ConfigError("schema", rule, field.dataType.simpleString()) from error


def _same(kind: DataType, fixed: DataType) -> bool:
    """Return True if the types are the same, apart from nullability."""
    if isinstance(kind, MapType) and isinstance(fixed, MapType):
        return type(kind.keyType) is StringType and type(kind.valueType) is StringType
    return type(kind) is type(fixed)


def arrow_schema(schema: StructType) -> Any:
    """Return the schema that Spark expects of record batches."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # before PySpark 4.2
        return to_arrow_schema(schema)
