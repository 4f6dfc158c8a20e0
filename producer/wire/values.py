"""Converts values of many types one step towards JSON, by their type.

Types of libraries are recognised by name and attributes, so none of them is imported. The result for each type is
cached.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from numbers import Integral
from typing import Any
from uuid import UUID

#: Converts a value to text, bytes, a number, a bool, None, or a dict or list of any values.
Step = Callable[[Any], Any]

_MOST_TYPES = 1000
_steps: dict[type, Step | None] = {}


def step_of(kind: type) -> Step | None:
    """Return the conversion of values of a type; None if there is none."""
    try:
        return _steps[kind]
    except KeyError:
        if len(_steps) >= _MOST_TYPES:  # The program makes types at run time.
            _steps.clear()
        step = _steps[kind] = next((step for knows, step in _KNOWN if knows(kind)), None)
        return step


def message_of(error: BaseException) -> str:
    """Return the message of an error; as ``traceback`` does if that raises."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # a user's class
        return "<exception str() failed>"


def _is(*kinds: type) -> Callable[[type], bool]:
    return lambda kind: issubclass(kind, kinds)


def _has(*names: str) -> Callable[[type], bool]:
    return lambda kind: all(hasattr(kind, name) for name in names)


def _comes_from(module: str, *names: str) -> Callable[[type], bool]:
    """Return a check for a class of a package, or a subclass of it; with ``names`` only these classes."""

    def comes(kind: type) -> bool:
        return any(
            base.__module__.partition(".")[0] == module and (not names or base.__name__ in names)
            for base in kind.__mro__
        )

    return comes


def _is_attrs(kind: type) -> bool:
    return isinstance(getattr(kind, "__attrs_attrs__", None), tuple)


def _text_of_date(value: date | time) -> str:
    return value.isoformat()


def _seconds(value: timedelta) -> str:
    """Format the exact seconds, without trailing zeros."""
    micros = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    return _decimal(micros, 6)


def _decimal(count: int, digits: int) -> str:
    """Format a number of units of ``10**-digits``."""
    whole, part = divmod(abs(count), 10**digits)
    text = f"{whole}.{part:0{digits}}".rstrip("0").rstrip(".") if part else str(whole)
    return f"-{text}" if count < 0 else text


def _numpy(value: Any) -> Any:
    """Convert a scalar of NumPy that is not also a Python ``int``, ``float``, ``str`` or ``bytes``."""
    kind = value.dtype.kind
    if kind == "b":
        return bool(value)
    if kind == "f":  # The shortest text that reads back equal in its own precision.
        return float(str(value))
    text = str(value)
    if kind in "mM" and text == "NaT":
        return None
    if kind == "m":
        return _numpy_seconds(value)
    return value.item() if kind == "V" else text


def _numpy_seconds(value: Any) -> str:
    nanos = value.astype("timedelta64[ns]")
    if value.dtype.str[-3:] in ("[M]", "[Y]") or nanos.astype(value.dtype) != value:  # Also for more than 292 years.
        return str(value)
    return _decimal(int(nanos.astype("int64")), 9)


def _set(value: Set[Any]) -> list[Any]:
    """Sort the members by type and representation, so that equal sets become the same text."""
    return sorted(value, key=lambda one: (type(one).__qualname__, repr(one)))


def _exception(error: BaseException) -> dict[str, str]:
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return {"type": name, "message": message_of(error), "traceback": "".join(traceback.format_exception(error))}


def _fields(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}


def _attributes(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in value.__attrs_attrs__}


# The first match is used. The types str, bytes and similar ones need no conversion.
_KNOWN: list[tuple[Callable[[type], bool], Step]] = [
    (_comes_from("pandas", "NAType", "NaTType"), lambda _: None),
    (_is(enum.Enum), lambda value: value.value),
    (_is(bool), bool),
    (_comes_from("numpy", "timedelta64"), _numpy),  # also an Integral
    (_is(Integral), int),
    (_is(float), float.__float__),
    (_is(dict, list, tuple), lambda value: value),
    (_is(Mapping), dict),
    (_is(Decimal, UUID, Fraction, complex), str),
    (_is(datetime, date, time), _text_of_date),
    (_is(timedelta), _seconds),
    (_comes_from("numpy", "generic"), _numpy),
    (_comes_from("numpy", "ndarray"), lambda value: value.tolist()),
    (_is(BaseException), _exception),
    (_comes_from("ipaddress", "_IPAddressBase"), str),
    (_has("__fspath__"), os.fsencode),
    (_is(Set), _set),
    (_is(deque), list),
    (_has("model_dump", "model_fields"), lambda value: value.model_dump()),  # pydantic
    (_has("get_secret_value"), str),  # pydantic: masked
    (_has("__fields__", "dict", "parse_obj"), lambda value: value.dict()),  # pydantic before 2
    (_is_attrs, _attributes),
    (_has("__dataclass_fields__"), _fields),
]
