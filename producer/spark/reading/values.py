"""Parse the text of a field into the value of a column, with one function for each of Spark's types.

A function takes text, and returns a value that pyarrow accepts for the type, or raises ``ValueError``. Spaces around a
value are ignored. The session has no influence: a time without a zone is UTC.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
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
    StructType,
    TimestampNTZType,
    TimestampType,
)

Parse = Callable[[str], Any]

_WORDS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(("false", "f", "no", "n", "0"), False)
_BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_DATE = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ].*)?", re.ASCII)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?)?(Z|[+-]\d{2}:?\d{2})?", re.ASCII)

#: The permitted types of the user's columns, for error messages.
TYPES = (
    "string, tinyint, smallint, int, bigint, float, double, decimal, boolean, timestamp, timestamp_ntz, date, binary, "
    "and array, map and struct of these"
)


def parser_of(kind: DataType) -> Parse:
    """Return the function for a type.

    :raises TypeError: text cannot become a value of that type.
    """
    found = _SIMPLE.get(type(kind))
    if found is not None:
        return found
    if type(kind) in _BITS:
        return _integer_parser(_BITS[type(kind)])
    if isinstance(kind, DecimalType):
        return _decimal_parser(kind)
    if isinstance(kind, (ArrayType, MapType, StructType)):
        convert = _json_converter(kind)
        return lambda text: convert(_load(text))
    raise TypeError(kind.simpleString())


def _integer_parser(bits: int) -> Parse:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def parse(text: str) -> int:
        number = int(_plain(text))
        if low <= number <= high:
            return number
        raise ValueError(text)

    return parse


def _decimal_parser(kind: DecimalType) -> Parse:
    step, limit = Decimal(1).scaleb(-kind.scale), Decimal(1).scaleb(kind.precision - kind.scale)

    def parse(text: str) -> Decimal:
        try:
            with localcontext() as context:
                context.prec = 2 * DecimalType(38).precision
                number = Decimal(_plain(text)).quantize(step, rounding=ROUND_HALF_UP)
        except InvalidOperation as error:
            raise ValueError(text) from error
        if number.is_finite() and abs(number) < limit:
            return number
        raise ValueError(text)

    return parse


def _plain(text: str) -> str:
    """Return ``text``, unless it has characters that only Python accepts in numbers."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return text


def _float(text: str) -> float:
    return float(_plain(text))


def _boolean(text: str) -> bool:
    try:
        return _WORDS[text.strip().lower()]
    except KeyError as error:
        raise ValueError(text) from error


def _timestamp(text: str) -> datetime:
    time = _time(text)
    try:
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except OverflowError as error:  # out of range in UTC: the first hours of year 1, or the last of 9999
        raise ValueError(text) from error


def _local_timestamp(text: str) -> datetime:
    time = _time(text)
    if time.tzinfo is not None:
        raise ValueError(text)
    return time


def _time(text: str) -> datetime:
    text = text.strip()
    if _TIME.fullmatch(text) is None:
        raise ValueError(text)
    return datetime.fromisoformat(text)


def _date(text: str) -> date:
    found = _DATE.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    return date.fromisoformat(found[1])


_SIMPLE: dict[type[DataType], Parse] = {
    StringType: lambda text: text,
    BinaryType: lambda text: text.encode(),
    BooleanType: _boolean,
    FloatType: _float,
    DoubleType: _float,
    TimestampType: _timestamp,
    TimestampNTZType: _local_timestamp,
    DateType: _date,
}


def _load(text: str) -> Any:
    try:
        # Numbers stay text until their type is known.
        return json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except RecursionError as error:
        raise ValueError(text) from error


def _json_converter(kind: DataType) -> Callable[[Any], Any]:
    """Return the function from a value of :func:`_load` to a value of that type."""
    if isinstance(kind, ArrayType):
        return _array_converter(kind)
    if isinstance(kind, MapType):
        return _map_converter(kind)
    if isinstance(kind, StructType):
        return _struct_converter(kind)
    parse = parser_of(kind)
    return lambda value: None if value is None else parse(_json_text(value))


def _array_converter(kind: ArrayType) -> Callable[[Any], Any]:
    convert = _required(_json_converter(kind.elementType), kind.containsNull)
    return lambda value: None if value is None else [convert(each) for each in _is_a(list, value)]


def _map_converter(kind: MapType) -> Callable[[Any], Any]:
    key_of = parser_of(kind.keyType)
    convert = _required(_json_converter(kind.valueType), kind.valueContainsNull)

    def entries(value: Any) -> list[tuple[Any, Any]]:
        # Keys that differ as text may be equal as values: the last one counts.
        found = {key_of(key): convert(each) for key, each in _is_a(dict, value).items()}
        return list(found.items())

    return lambda value: None if value is None else entries(value)


def _struct_converter(kind: StructType) -> Callable[[Any], Any]:
    members = [(field.name, _required(_json_converter(field.dataType), field.nullable)) for field in kind.fields]

    def convert(value: Any) -> dict[str, Any]:
        found = _is_a(dict, value)
        return {name: of_member(found.get(name)) for name, of_member in members}

    return lambda value: None if value is None else convert(value)


def _required(convert: Callable[[Any], Any], nullable: bool) -> Callable[[Any], Any]:
    if nullable:
        return convert

    def required(value: Any) -> Any:
        converted = convert(value)
        if converted is None:
            raise ValueError("null where the schema has none")
        return converted

    return required


def _is_a(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"not a JSON {kind.__name__}")  # ValueError, as for every invalid value
    return value


def _json_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    raise ValueError("an object or a list where the schema has a single value")
