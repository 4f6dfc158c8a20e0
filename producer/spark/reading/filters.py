"""Apply conditions of a WHERE clause in the reader: drop rows early, and limit the range of time.

Spark applies every condition again. So this module may ignore a condition, but must not drop a row that Spark would
keep. It uses only comparisons that Arrow and Spark define in the same way for a type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from .schema import TIME, arrow_schema

_Test = Callable[[Any, Any], Any]

_EQUAL = ("EqualTo", "EqualNullSafe")

# Tests by the name of Spark's filter. A comparison with null is null, as in SQL, unless the filter defines another
# result.
_OF_ANY_TYPE: dict[str, _Test] = {
    "IsNull": lambda column, _value: pc.is_null(column),
    "IsNotNull": lambda column, _value: pc.is_valid(column),
}
_COMPARISONS: dict[str, _Test] = {
    "EqualTo": pc.equal,
    "EqualNullSafe": lambda column, value: pc.fill_null(pc.equal(column, value), False),
    "GreaterThan": pc.greater,
    "GreaterThanOrEqual": pc.greater_equal,
    "LessThan": pc.less,
    "LessThanOrEqual": pc.less_equal,
}
_OF_TEXT: dict[str, _Test] = {
    "StringStartsWith": lambda column, value: pc.starts_with(column, pattern=value),
    "StringEndsWith": lambda column, value: pc.ends_with(column, pattern=value),
    "StringContains": lambda column, value: pc.match_substring(column, pattern=value),
}
_LITERALS: dict[type[DataType], type] = {
    StringType: str,
    ByteType: int,
    ShortType: int,
    IntegerType: int,
    LongType: int,
    BooleanType: bool,
    DateType: date,
    TimestampType: datetime,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a column with a value.

    :ivar column: the column's name.
    :ivar test: the name of Spark's filter.
    :ivar value: the value; a tuple of values for ``In``; None for a test without a value.
    :ivar negated: True for the opposite.
    """

    column: str
    test: str
    value: Any = None
    negated: bool = False

    def holds(self, batch: pa.RecordBatch) -> Any:
        """Return true, false or null for each row."""
        found = self._of(batch.column(self.column))
        return pc.invert(found) if self.negated else found

    def _of(self, column: Any) -> Any:
        if self.test in _OF_ANY_TYPE:
            return _OF_ANY_TYPE[self.test](column, None)
        if self.test in _OF_TEXT:
            return _OF_TEXT[self.test](column, self.value)
        if self.test == "In":
            among = pc.is_in(column, value_set=pa.array(self.value, column.type))
            return pc.if_else(pc.is_null(column), pa.scalar(None, pa.bool_()), among)
        return _COMPARISONS[self.test](column, pa.scalar(self.value, column.type))


def conditions_of(filters: Sequence[Any], schema: StructType) -> tuple[Condition, ...]:
    """Return the supported conditions; a row must meet all of them.

    :param filters: the filters from Spark.
    :param schema: the columns.
    """
    found = (_condition_of(each, schema) for each in filters)
    return tuple(each for each in found if each is not None)


def _condition_of(offered: Any, schema: StructType, *, negated: bool = False) -> Condition | None:
    test = type(offered).__name__
    if test == "Not":
        return None if negated else _condition_of(offered.child, schema, negated=True)
    path: tuple[str, ...] = getattr(offered, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names:
        return None
    if test in _OF_ANY_TYPE:
        return Condition(path[0], test, None, negated)
    kind = schema[path[0]].dataType
    if not (test in _COMPARISONS or test == "In" or (test in _OF_TEXT and isinstance(kind, StringType))):
        return None
    values = tuple(offered.value) if test == "In" else (offered.value,)
    if not all(_is_comparable(kind, each) for each in values):
        return None
    return Condition(path[0], test, values if test == "In" else values[0], negated)


def _is_comparable(kind: DataType, value: object) -> bool:
    """Return True if Arrow compares the value with values of the column as Spark does."""
    if type(value) is not _LITERALS.get(type(kind)):
        return False
    if isinstance(value, datetime) and value.tzinfo is None:
        return False
    if isinstance(kind, StringType) and kind.simpleString() != "string":  # text with a collation
        return False
    try:
        pa.scalar(value, arrow_schema(StructType([StructField("", kind)])).field(0).type)
    except (pa.ArrowException, OverflowError, ValueError):  # the type cannot represent it
        return False
    return True


def kept(batch: pa.RecordBatch, conditions: Sequence[Condition]) -> pa.RecordBatch:
    """Return the rows of a batch that meet all conditions."""
    for condition in conditions:
        batch = batch.filter(condition.holds(batch))
    return batch


def times_of(conditions: Sequence[Condition]) -> tuple[int | None, int | None]:
    """Return the first and the last Unix second of the logs' times, both inclusive; None for no bound."""
    own = [each for each in conditions if each.column == TIME and not each.negated and each.value is not None]
    first = [each.value for each in own if each.test in {"GreaterThan", "GreaterThanOrEqual", *_EQUAL}]
    last = [each.value for each in own if each.test in {"LessThan", "LessThanOrEqual", *_EQUAL}]
    return (
        math.floor(max(first).timestamp()) if first else None,
        math.ceil(min(last).timestamp()) if last else None,
    )
