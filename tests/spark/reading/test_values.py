"""Text becomes the value of a column, for each type."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CalendarIntervalType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from producer.spark.reading.number_columns import plain_numbers
from producer.spark.reading.values import parser_of

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
PERSON = StructType(
    [
        StructField("name", StringType(), nullable=False),
        StructField("ages", ArrayType(IntegerType())),
        StructField("by_day", MapType(DateType(), DecimalType(5, 2), valueContainsNull=False)),
    ]
)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ByteType(), "-128", -128),
        (ShortType(), " 32767 ", 32767),
        (IntegerType(), "+007", 7),
        (LongType(), "-9223372036854775808", -(2**63)),
        (DoubleType(), "1.5e3", 1500.0),
        (FloatType(), "-Infinity", float("-inf")),
        (DecimalType(5, 2), "1.005", Decimal("1.01")),
        (DecimalType(38, 10), "9" * 28 + ".0123456789", Decimal("9" * 28 + ".0123456789")),
        (BooleanType(), "TRUE", True),
        (BooleanType(), " no", False),
        (TimestampType(), "2026-01-31T12:00:00Z", NOON),
        (TimestampType(), "2026-01-31 13:00:00.000001+01:00", NOON.replace(microsecond=1)),
        (TimestampType(), "2026-01-31T12:00:00.123456789", NOON.replace(microsecond=123456)),
        (TimestampType(), "2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        (TimestampNTZType(), "2026-01-31 12:00:00", NOON.replace(tzinfo=None)),
        (DateType(), "2026-01-31", date(2026, 1, 31)),
        (DateType(), "2026-01-31T12:00:00Z", date(2026, 1, 31)),
        (StringType(), " as it is ", " as it is "),
        (BinaryType(), "é", b"\xc3\xa9"),
        (ArrayType(LongType()), "[1, null, -3]", [1, None, -3]),
        (MapType(StringType(), BooleanType()), '{"a": true, "b": "f"}', [("a", True), ("b", False)]),
        (
            PERSON,
            '{"ages": [3], "name": "x", "by_day": {"2026-01-31": 1.5}, "more": {}}',
            {"name": "x", "ages": [3], "by_day": [(date(2026, 1, 31), Decimal("1.50"))]},
        ),
        (PERSON, '{"name": "x"}', {"name": "x", "ages": None, "by_day": None}),
        (PERSON, "null", None),
    ],
)  # fmt: skip
def test_text_becomes_a_value(kind: DataType, text: str, value: Any) -> None:
    """Each type accepts the forms that the documentation names."""
    found = parser_of(kind)(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ByteType(), "128"),
        (IntegerType(), "2147483648"),
        (LongType(), "1.0"),
        (LongType(), ""),
        (LongType(), "1_000"),
        (LongType(), "٣"),
        (LongType(), "0x10"),
        (DoubleType(), "1,5"),
        (DoubleType(), "1_0.0"),
        (DecimalType(3, 1), "123.4"),
        (DecimalType(3, 1), "NaN"),
        (DecimalType(3, 1), "99.96"),
        (BooleanType(), "maybe"),
        (TimestampType(), "1769860800"),
        (TimestampType(), "31.01.2026"),
        (TimestampType(), "2026-02-30T00:00:00Z"),
        (TimestampType(), "9999-12-31T23:59:59-01:00"),
        (TimestampNTZType(), "2026-01-31T12:00:00Z"),
        (DateType(), "20260131"),
        (ArrayType(LongType()), '{"a": 1}'),
        (ArrayType(LongType()), "[1, [2]]"),
        (ArrayType(LongType(), containsNull=False), "[null]"),
        (PERSON, '{"ages": []}'),
        (PERSON, "[" * 100_000),
    ],
)
def test_an_invalid_value_always_raises_valueerror_and_never_becomes_another_value(kind: DataType, text: str) -> None:
    """An invalid value always raises ValueError, and never becomes another value."""
    with pytest.raises(ValueError):
        parser_of(kind)(text)


@pytest.mark.parametrize("kind", [CalendarIntervalType(), ArrayType(CalendarIntervalType())])
def test_a_type_that_text_cannot_become_is_refused_when_the_columns_are_chosen(kind: DataType) -> None:
    """A type that text cannot become is refused when the columns are chosen."""
    with pytest.raises(TypeError):
        parser_of(kind)


NUMBERS = ["0", "-0", "7", "-12", "00012", "999999999999999999", "0.1", "-2.50", "123456.789012345678", "1.0"]


@pytest.mark.parametrize("text", NUMBERS)
@pytest.mark.parametrize(
    ("kind", "arrow"),
    [(LongType(), pa.int64()), (IntegerType(), pa.int32()), (DoubleType(), pa.float64()), (FloatType(), pa.float32())],
)
def test_the_fast_way_of_numbers_finds_the_same(kind: DataType, arrow: Any, text: str) -> None:
    """A number parsed with its whole column equals the number parsed alone, or the column is parsed value by value."""
    fast = plain_numbers(pa.array([text, None]), arrow)
    if fast is not None:
        assert fast.equals(pa.array([parser_of(kind)(text), None], arrow))
    plain = "." not in text if isinstance(kind, (LongType, IntegerType)) else True
    assert (fast is not None) == (plain and not (kind == IntegerType() and len(text) > 10))


def test_the_fast_way_of_numbers_leaves_the_rest() -> None:
    """A value that is not a plain number, and a type that is not numeric, are left to the other parser."""
    assert plain_numbers(pa.array(["1", "+1"]), pa.int64()) is None
    assert plain_numbers(pa.array(["1", "nan"]), pa.float64()) is None
    assert plain_numbers(pa.array(["1"]), pa.bool_()) is None
    assert plain_numbers(pa.array([None], pa.string()), pa.int16()).to_pylist() == [None]
