"""How a value becomes the text of a field, and an item's time the two numbers of the wire."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from numbers import Integral, Real
from typing import Any
from uuid import UUID

from ..errors import InvalidArgumentError
from ..records import LogItem

#: ``Time`` of a log is a 32-bit count of seconds.
MAX_TIME = 2**32 - 1
#: ``Time_ns`` is the part of a second below it, in nanoseconds.
MAX_TIME_NS = 999_999_999
# Of structures that JSON has no word for as they are; the others may be as deep as the interpreter allows.
_MAX_DEPTH = 200


def time_of(item: LogItem, now: int) -> tuple[int, int]:
    """The seconds and nanoseconds that ``item`` is sent with.

    :param now: seconds since the epoch, for an item without a time.
    :raises InvalidArgumentError: not a number or an aware datetime, or out of range.
    """
    time, nanos = item.time, item.time_ns
    seconds: Any = time
    if time is None:
        seconds = now
    elif isinstance(time, datetime):
        seconds, below = _split_datetime(time)
        nanos = below if nanos is None else nanos
    elif isinstance(time, Real) and not isinstance(time, Integral):
        seconds, below = _split_number(float(time))
        nanos = below if nanos is None else nanos
    if nanos is None:
        nanos = 0
    _check_range("time", seconds, MAX_TIME)
    _check_range("time_ns", nanos, MAX_TIME_NS)
    return int(seconds), int(nanos)


def _split_datetime(moment: datetime) -> tuple[int, int]:
    if moment.tzinfo is None:
        raise InvalidArgumentError(
            f"time: a datetime needs a time zone, such as datetime.now(timezone.utc) has; got {moment!r}"
        )
    return math.floor(moment.timestamp()), moment.microsecond * 1000


def _split_number(time: float) -> tuple[int | float, int]:
    """To the microsecond: a number of seconds since 1970 carries no more."""
    if not math.isfinite(time):
        return time, 0
    seconds, micros = divmod(round(time * 1_000_000), 1_000_000)
    return seconds, micros * 1000


def _check_range(name: str, value: object, highest: int) -> None:
    if not isinstance(value, bool) and isinstance(value, Integral) and 0 <= int(value) <= highest:
        return
    kind = "a number of seconds since 1970" if name == "time" else "an integer"
    raise InvalidArgumentError(f"{name}: must be {kind} from 0 to {highest}{_unit_of(name, value)}, got {value!r}")


def _unit_of(name: str, value: object) -> str:
    """What may be meant by a time that is too large."""
    if name == "time" and isinstance(value, Integral):
        for unit, factor in (("milliseconds", 10**3), ("microseconds", 10**6), ("nanoseconds", 10**9)):
            if 10**9 <= int(value) // factor <= MAX_TIME:
                return f" (this looks like {unit}: divide by {factor})"
    return ""


def text_of(value: Any, name: str) -> str | bytes:
    """``value`` as the text (or bytes) that travels; the rule for every value that is not None.

    ======================  ==================================================
    ``str``, ``bytes``      as they are (``bytearray``, ``memoryview`` as bytes)
    ``bool``                ``true``, ``false``
    ``int``                 decimal digits (also other integers, as NumPy's)
    ``float``               ``repr``: the shortest text that reads back equal
    ``Decimal``             ``str``, never in floating point
    ``datetime``            ISO 8601 (``isoformat``); ``date`` and ``time`` too
    ``UUID``                36 characters with dashes
    mappings, lists,        compact JSON in UTF-8; values inside follow this
    tuples                  table as JSON strings, numbers and booleans apart
    ======================  ==================================================

    :param name: the field, for the error.
    :raises InvalidArgumentError: another type, or a structure that JSON cannot express.
    """
    quick = _QUICK.get(type(value))
    try:
        text = quick(value) if quick is not None else _general_text(value, name)
    except InvalidArgumentError:
        raise
    except ValueError as error:  # an integer of thousands of digits, a released memoryview
        raise InvalidArgumentError(f"field {name!r}: {error}") from error
    if text is None:
        raise InvalidArgumentError(
            f"field {name!r}: cannot send a value of type {type(value).__module__}.{type(value).__qualname__}; "
            "make it text, bytes, a number, bool, Decimal, datetime, UUID, or a mapping or list of these"
        )
    return text


def data_of(value: Any, name: str) -> bytes:
    """The bytes that travel for a value that is not None.

    :param name: the field, for the error.
    :raises InvalidArgumentError: it cannot become text, or the text is not valid Unicode.
    """
    text = text_of(value, name)
    if isinstance(text, bytes):
        return text
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"field {name!r}: the text is not valid Unicode ({error}); send bytes, or replace the surrogates"
        ) from error


def _general_text(value: object, name: str) -> str | bytes | None:
    # Of subclasses the true characters, whatever they make of their length or encoding.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes(memoryview(value))
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Mapping | list | tuple):
        return _json_of(value, name)
    return _scalar_text(value)


def _text_of_bool(value: bool) -> str:
    return "true" if value else "false"


# The commonest types by exact match; their subclasses take the general way, to the same result.
_QUICK: dict[type, Callable[[Any], str | bytes]] = {
    str: lambda value: value,
    bytes: lambda value: value,
    int: int.__repr__,
    float: float.__repr__,
    bool: _text_of_bool,
}


def _scalar_text(value: object) -> str | None:
    if isinstance(value, bool):
        return _text_of_bool(value)
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return None


def _json_of(value: object, name: str) -> str:
    try:
        try:
            return _dumps(value)
        except ValueError:  # perhaps a number that JSON has no word for
            return _dumps(_finite(value, 0))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"field {name!r}: cannot become JSON: {error}") from error


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_json_default)


def _finite(value: Any, depth: int) -> Any:
    """``value`` with ``nan`` and the infinities as text."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {_MAX_DEPTH} levels, or contains itself")
    if isinstance(value, float) and not math.isfinite(value):
        return float.__repr__(value)
    if isinstance(value, Mapping):
        return {key: _finite(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner, depth + 1) for inner in value]
    return value


def _json_default(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, Integral):
        return int(value)
    text = _scalar_text(value)
    if text is None:
        raise TypeError(f"a value of type {type(value).__qualname__} inside it")
    return text
