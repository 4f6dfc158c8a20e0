"""Check the columns of a DataFrame and their types before a job begins."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    CalendarIntervalType,
    CharType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
    UserDefinedType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)

from ...model.errors import ConfigError
from .options import COLUMN_OPTIONS, Columns

_TEXT = (StringType, CharType, VarcharType)
_TIMES = (TimestampType, ByteType, ShortType, IntegerType, LongType)
_WITHOUT_TEXT = (DayTimeIntervalType, YearMonthIntervalType, CalendarIntervalType, VariantType, UserDefinedType)

_WANTED: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "time": (_TIMES, "a timestamp with a time zone, or an integer of Unix seconds"),
    "topic": (_TEXT, "text"),
    "source": (_TEXT, "text"),
    "shard_hash": (_TEXT, "text"),
    "contents": ((MapType,), "a map of text to values"),
}


def check_schema(schema: StructType, columns: Columns, row_labels: Iterable[str] = ()) -> None:
    """Check that the DataFrame has the columns that options name, and that all others can become fields.

    :raises ConfigError: a column is missing or has a wrong type.
    """
    for role, option in COLUMN_OPTIONS.items():
        name = getattr(columns, role)
        if name is not None:
            _check_role(schema, role, option, name)
    for name in row_labels:
        if name not in schema.fieldNames():
            raise _no_column(schema, "rowLabels", name)
    for path, kind in _parts(schema):
        if isinstance(kind, _WITHOUT_TEXT):
            rule = f"a column of type {kind.simpleString()} cannot become text; cast it, or leave it out with drop()"
            raise ConfigError(f"column {path}", rule, kind.simpleString())


def _check_role(schema: StructType, role: str, option: str, name: str) -> None:
    if name not in schema.fieldNames():
        raise _no_column(schema, option, name)
    kind = schema[name].dataType
    types, words = _WANTED[role]
    fits = isinstance(kind, types)
    if fits and isinstance(kind, MapType):
        fits = isinstance(kind.keyType, _TEXT)
    if not fits:
        raise ConfigError(option, f"must be a column of {words}; {name} is a {kind.simpleString()}", name)


def _no_column(schema: StructType, option: str, name: str) -> ConfigError:
    near = difflib.get_close_matches(name, schema.fieldNames(), n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"its columns are {', '.join(schema.fieldNames())}"
    return ConfigError(option, f"must be a column of the DataFrame; {hint}", name)


def _parts(kind: DataType, path: str = "") -> Iterator[tuple[str, DataType]]:
    """Yield every type inside a type, with its path."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _parts(field.dataType, f"{path}.{field.name}" if path else field.name)
    elif isinstance(kind, ArrayType):
        yield from _parts(kind.elementType, path)
    elif isinstance(kind, MapType):
        yield from _parts(kind.keyType, path)
        yield from _parts(kind.valueType, path)
    else:
        yield path, kind
