"""Types of Parquet columns, found in values, and conversion of values to them.

A type widens from ``int64`` to ``double``, and from any other to ``string``. A value that fits its column keeps its
meaning: ``"12"`` fits ``int64``, ``2**60 + 1`` does not fit ``double``. Times have microseconds; a number is
milliseconds since the epoch, and text is ISO 8601, in UTC if it names no zone.

Example: of ``1`` and ``2.5`` the type is ``double``, of ``1`` and ``"a"`` it is ``string``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, date
from math import isfinite
from typing import Any

from ....wire.json_object import json_text
from ....wire.times import moment_of, placed_in

#: Types that a schema may declare, besides ``list<…>`` of each.
KINDS = ("bool", "int64", "double", "string", "timestamp", "date")
#: Types found in values.
INFERRED = KINDS[:4]
#: Exceptions for a value that does not fit its column.
UNFIT = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)

_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d{1,400}(\.\d{1,400})?([eE][+-]?\d{1,4})?", re.ASCII)
_FIRST, _LAST = -(2**63), 2**63 - 1
#: Microseconds of the years 1 to 9999, which all readers have.
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999


def is_kind(name: str) -> bool:
    """Return True if a schema may declare this type."""
    return (name[5:-1] if name.startswith("list<") and name.endswith(">") else name) in KINDS


def fields_of(text: str) -> dict[str, Any] | None:
    """Return the fields of a JSON object that are not null; None for any other text.

    A number that Python cannot represent makes the text invalid, so that it is kept as it is.
    """
    if not text.lstrip().startswith("{"):
        return None
    try:
        loaded = json.loads(text, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        return None
    return {name: value for name, value in loaded.items() if value is not None}


def kind_of(values: Iterable[Any], types: AbstractSet[type]) -> str:
    """Return the narrowest type of a column for some values.

    :param types: the values' Python types, without that of None.
    """
    if types == {bool}:
        return "bool"
    if types == {int}:
        numbers = [0, *filter(None, values)]
        return "int64" if min(numbers) >= _FIRST and max(numbers) <= _LAST else "string"
    return "double" if types <= {int, float} else "string"


def widened(kind: str, other: str) -> str:
    """Return the narrowest type for the values of two types."""
    if kind == other:
        return kind
    return "double" if {kind, other} == {"int64", "double"} else "string"


def arrow_type(kind: str) -> Any:
    """Return the type in Arrow; ``map`` is that of headers."""
    import pyarrow

    if kind.startswith("list<"):
        return pyarrow.list_(arrow_type(kind[5:-1]))
    if kind == "map":
        return pyarrow.map_(pyarrow.string(), pyarrow.string())
    if kind == "timestamp":
        return pyarrow.timestamp("us", "UTC")
    return pyarrow.type_for_alias({"date": "date32"}.get(kind, kind))


def fitted(kind: str, value: Any) -> Any:
    """Convert a value to a type; None stays None.

    :raises Exception: one of :data:`UNFIT`: the value does not fit.
    """
    if value is None:
        return None
    if kind.startswith("list<"):
        items = json.loads(value) if isinstance(value, str) else value
        if not isinstance(items, list):
            raise TypeError(value)
        return [fitted(kind[5:-1], item) for item in items]
    return _FITTED[kind](value)


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(text)
    return number


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}[_text(value)]


def _integer(value: Any) -> int:
    if (isinstance(value, float) and value.is_integer()) or (isinstance(value, str) and _INTEGER.fullmatch(value)):
        value = int(value)
    if type(value) is not int or not _FIRST <= value <= _LAST:
        raise ValueError(value)
    return value


def _double(value: Any) -> float:
    if isinstance(value, bool) or (isinstance(value, str) and not _NUMBER.fullmatch(value)):
        raise ValueError(value)
    number = float(value)
    if not isfinite(number) or (isinstance(value, int) and number != value):
        raise ValueError(value)
    return number


def _string(value: Any) -> str:
    text = json_text(value)
    text.encode()  # half of a surrogate pair is no text
    return text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _time(value: Any) -> int:
    """Return microseconds since the epoch."""
    if isinstance(value, str) and not _INTEGER.fullmatch(value):
        moment = moment_of(value, placed_in(UTC))
        microseconds = None if moment is None else moment // 1000
    else:
        microseconds = _integer(value) * 1000
    if microseconds is None or not _FIRST_TIME <= microseconds <= _LAST_TIME:
        raise ValueError(value)
    return microseconds


def _date(value: Any) -> date:
    return date.fromisoformat(_text(value))


_FITTED: Mapping[str, Callable[[Any], Any]] = {
    "bool": _bool,
    "int64": _integer,
    "double": _double,
    "string": _string,
    "timestamp": _time,
    "date": _date,
}
