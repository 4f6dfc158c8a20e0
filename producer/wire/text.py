"""Converts values to the text of fields, and times to seconds and nanoseconds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from numbers import Integral, Real
from typing import Any, NamedTuple

from ..model.errors import InvalidArgumentError
from ..model.records import LogItem
from ..text.printable import described, repr_of
from .values import message_of, step_of

#: ``Time`` of a log is a 32-bit number of seconds.
MAX_TIME = 2**32 - 1
#: ``Time_ns`` is the fraction of the second, in nanoseconds.
MAX_TIME_NS = 999_999_999
# Depth limit for structures that JSON cannot express directly; others may be as deep as the interpreter allows.
_MAX_DEPTH = 200
# Maximum number of conversions of one value, as a conversion may return a value that needs another one.
_MOST_STEPS = 20

#: Converts a value of another type to one that can be sent, as in ``json.dumps``, or raises.
Default = Callable[[Any], Any]


class Fallback(NamedTuple):
    """The handling of values that the table of :func:`text_of` does not cover.

    :ivar default: a conversion that is tried first.
    :ivar lenient: True to send the ``repr`` of a value that still cannot be sent; False to raise an error.
    """

    default: Default | None = None
    lenient: bool = False


def fallback_of(default: Default | None, on_unencodable: str) -> Fallback | None:
    """Return the handling that the options of the configuration select; None to only raise errors."""
    lenient = on_unencodable == "repr"
    return Fallback(default, lenient) if default is not None or lenient else None


def time_of(item: LogItem, now: int, now_ns: int = 0) -> tuple[int, int]:
    """Return the seconds and nanoseconds that ``item`` is sent with.

    :param now: the time of an item without one, seconds since the epoch.
    :param now_ns: nanoseconds within that second.
    :raises InvalidArgumentError: the time is not a number or an aware datetime, or is out of range.
    """
    time, nanos = item.time, item.time_ns
    seconds: Any = time
    if time is None:
        seconds, nanos = now, now_ns if nanos is None else nanos
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


def moment_of(time: float) -> tuple[int, int]:
    """Split a time into seconds since the epoch and nanoseconds, in the precision of a float.

    :param time: the time of the system clock, seconds since the epoch.
    :raises InvalidArgumentError: it is out of range for a log.
    """
    if not 0 <= time < MAX_TIME + 1:
        raise InvalidArgumentError(
            f"the system clock must be at 0 to {MAX_TIME} seconds since 1970 to send logs, but is at {time}: set it"
        )
    second = int(time)
    return second, int((time - second) * 1e9)


def _split_datetime(moment: datetime) -> tuple[int, int]:
    if moment.tzinfo is None:
        raise InvalidArgumentError(
            f"time: a datetime needs a time zone, such as datetime.now(timezone.utc) has; got {described(moment)}"
        )
    return math.floor(moment.timestamp()), moment.microsecond * 1000


def _split_number(time: float) -> tuple[int | float, int]:
    """Split to the microsecond, which is the precision of a float."""
    if not math.isfinite(time):
        return time, 0
    seconds, micros = divmod(round(time * 1_000_000), 1_000_000)
    return seconds, micros * 1000


def _check_range(name: str, value: object, highest: int) -> None:
    if not isinstance(value, bool) and isinstance(value, Integral) and 0 <= int(value) <= highest:
        return
    kind = "a number of seconds since 1970" if name == "time" else "an integer"
    raise InvalidArgumentError(
        f"{name}: must be {kind} from 0 to {highest}{_unit_of(name, value)}, got {described(value)}"
    )


def _unit_of(name: str, value: object) -> str:
    """Suggest a correction for a time that is too large, or is text."""
    if name == "time" and isinstance(value, str):
        return " (or a datetime with a time zone)"
    if name == "time" and isinstance(value, Integral):
        for unit, factor in (("milliseconds", 10**3), ("microseconds", 10**6), ("nanoseconds", 10**9)):
            if 10**9 <= int(value) // factor <= MAX_TIME:
                return f" (this looks like {unit}: divide by {factor})"
    return ""


def text_of(value: Any, name: str, default: Default | None = None) -> str | bytes | None:
    """Convert a value that is not None to the text (or bytes) of its field.

    =======================  ==================================================
    ``str``, ``bytes``       unchanged (``bytearray``, ``memoryview`` as bytes)
    ``bool``                 ``true``, ``false``
    ``int``                  decimal digits
    ``float``                ``repr``: the shortest text that reads back equal
    ``Decimal``              ``str``, never in floating point; also ``Fraction``, ``complex``
    ``datetime``             ISO 8601 (``isoformat``); ``date`` and ``time`` too
    ``timedelta``            its seconds, exact: ``90.5``
    ``UUID``, ``ipaddress``  ``str``
    ``Enum``                 the text of its value
    ``Path``                 the path, in the bytes of the file system
    mappings, lists,         compact JSON in UTF-8; inner values follow this
    tuples, ``deque``        table as JSON strings; numbers, booleans, mappings
                             and lists as themselves
    sets                     a JSON list, in a fixed order
    dataclasses, attrs,      a JSON object of their fields
    pydantic models
    exceptions               ``{"type": …, "message": …, "traceback": …}``
    NumPy's scalars          as Python's; arrays as lists
    ``NaT``, ``NA``          the field is left out; null inside of JSON
    =======================  ==================================================

    :param name: the field name, for the error.
    :param default: converts a value of another type to one of this table, or raises.
    :returns: None for a value that is left out.
    :raises InvalidArgumentError: the type is not covered, or JSON cannot express a structure.
    """  # prose: a table, not a sentence
    quick = _QUICK.get(type(value))
    try:
        if quick is not None:
            return quick(value)
    except ValueError as error:  # An integer of thousands of digits. The caller handles all other errors.
        raise InvalidArgumentError(f"field {name!r}: {message_of(error)}") from error
    try:
        return _general_text(value, name, default)
    except (InvalidArgumentError, MemoryError):
        raise
    except ValueError as error:  # A released memoryview.
        raise InvalidArgumentError(f"field {name!r}: {message_of(error)}") from error
    except Exception as error:  # Code of a foreign type may raise anything.
        raise InvalidArgumentError(
            f"field {name!r}: a value of type {type(value).__qualname__} cannot be read: "
            f"{type(error).__name__}: {message_of(error)}"
        ) from error


def data_of(value: Any, name: str, default: Default | None = None) -> bytes | None:
    """Convert a value that is not None to the bytes of its field.

    :param name: the field name, for the error.
    :param default: converts a value of another type, or raises.
    :returns: None for a value that is left out.
    :raises InvalidArgumentError: it cannot become text, or the text is not valid Unicode.
    """
    text = text_of(value, name, default)
    if text is None or isinstance(text, bytes):
        return text
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"field {name!r}: the text is not valid Unicode ({error}); send bytes, or replace the surrogates"
        ) from error


def lenient_items(items: Iterable[tuple[Any, Any]], default: Default | None) -> list[tuple[str, bytes]]:
    """Convert fields of which some cannot be sent to names and values that can.

    :param items: names and values.
    """
    return [
        (_lenient_name(name), data)
        for name, value in items
        if value is not None and (data := _lenient_data(value, default)) is not None
    ]


def _lenient_name(name: object) -> str:
    text = str.__str__(name) if issubclass(type(name), str) else repr_of(name)
    return text.encode("utf-8", "backslashreplace").decode()


def _lenient_data(value: object, default: Default | None) -> bytes | None:
    try:
        return data_of(value, "", default)
    except Exception:  # noqa: BLE001  # code of a foreign type may raise anything
        text = str.__str__(value) if issubclass(type(value), str) else repr_of(value)
        return text.encode("utf-8", "backslashreplace")


def _text_of_bool(value: bool) -> str:
    return "true" if value else "false"


# The most common types by exact match; subclasses have the same result, but take longer.
_QUICK: dict[type, Callable[[Any], str | bytes]] = {
    str: lambda value: value,
    bytes: lambda value: value,
    int: int.__repr__,
    float: float.__repr__,
    bool: _text_of_bool,
}


def _general_text(value: Any, name: str, default: Default | None) -> str | bytes | None:
    for _ in range(_MOST_STEPS):
        # The characters of subclasses, without their overrides of length or encoding.
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, bytes):
            return bytes(memoryview(value))
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        if isinstance(value, Mapping | list | tuple):
            return _json_of(value, name, default)
        value = _next(value, name, default)
        if value is None:
            return None
        quick = _QUICK.get(type(value))
        if quick is not None:
            return quick(value)
    raise InvalidArgumentError(f"field {name!r}: default, or the value of an Enum, returns no value that can be sent")


def _next(value: Any, name: str, default: Default | None) -> Any:
    """Convert a value one step towards a type of the table.

    :raises InvalidArgumentError: there is no conversion, or it fails.
    """
    step = step_of(type(value)) or default
    if step is None:
        raise InvalidArgumentError(
            f"field {name!r}: cannot send a value of type {type(value).__module__}.{type(value).__qualname__}; make it "
            "text, bytes, a number, a date or a list or mapping of these, or set ProducerConfig(default=...)"
        )
    try:
        return step(value)
    except Exception as error:
        raise InvalidArgumentError(
            f"field {name!r}: a value of type {type(value).__qualname__} cannot be converted: "
            f"{type(error).__name__}: {message_of(error)}"
        ) from error


def _json_of(value: object, name: str, default: Default | None) -> str:
    def reduced(inner: object) -> object:
        return _json_default(inner, name, default)

    try:
        try:
            return _dumps(value, reduced)
        # The value may have a number that JSON cannot express, or a key that is not text.
        except (TypeError, ValueError):
            return _dumps(_plain(value, reduced, 0), reduced)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"field {name!r}: cannot become JSON: {message_of(error)}") from error


def _dumps(value: object, reduced: Default) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=reduced)


def _plain(value: Any, reduced: Default, depth: int) -> Any:
    """Replace ``nan``, the infinities, and keys of all types by text."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {_MAX_DEPTH} levels, or contains itself")
    if isinstance(value, float):
        return value if math.isfinite(value) else float.__repr__(value)
    if isinstance(value, Mapping):
        return {_name(key, reduced): _plain(inner, reduced, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, reduced, depth + 1) for inner in value]
    if value is None or isinstance(value, str | int):
        return value
    return _plain(reduced(value), reduced, depth + 1)


def _name(key: Any, reduced: Default) -> Any:
    if key is None or isinstance(key, str | int | float):
        return key
    name = None if isinstance(key, tuple | list | Mapping) else reduced(key)
    if isinstance(name, str | int | float):
        return name
    raise TypeError(f"a name must be text, got {repr_of(key)} of type {type(key).__qualname__}")


def _json_default(value: object, name: str, default: Default | None) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    step = step_of(type(value))
    if step is None and default is None:
        raise TypeError(f"a value of type {type(value).__qualname__} inside it")
    made = _next(value, name, default)
    if made is value:
        raise TypeError(f"default returned the value of type {type(value).__qualname__} itself")
    return made
