"""Fields from senders as headers and as JSON. No field is lost, whatever its name and value.

* A second field of the same name becomes ``NAME_2``, and so on.
* A field with the name of an own header, such as ``timestamp``, becomes ``field_NAME``.
* A name that is not text is replaced by its JSON; bytes are decoded as UTF-8.
* Numbers that JSON lacks (NaN, infinities) become texts. Bytes that are not UTF-8 are escaped, as ``\\udcff``.

Example: ``{"a": 1, "a": NaN, 7: 2}`` becomes ``{"a": 1, "a_2": "NaN", "7": 2}``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_TEXT = frozenset((str,))


def unique_names(pairs: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    """Make a dict of pairs; a hook for parsers of JSON and MessagePack."""
    try:
        found = dict(pairs)
    except TypeError:  # a name is a list or an object
        return _named(pairs)
    return found if len(found) == len(pairs) and _TEXT.issuperset(map(type, found)) else _named(pairs)


def _named(pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    numbers: dict[str, int] = {}  # the last number of each name, so that repeated names take linear time
    for key, value in pairs:
        name = first = text_of(key)
        while name in named:
            numbers[first] = numbers.get(first, 1) + 1
            name = f"{first}_{numbers[first]}"
        named[name] = value
    return named


def with_own(fields: dict[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Add own headers to fields; a field with the same name is renamed."""
    if not own.keys().isdisjoint(fields):
        for name in own.keys() & fields.keys():
            other = f"field_{name}"
            while other in fields:
                other = f"field_{other}"
            fields[other] = fields.pop(name)
    fields.update(own)
    return fields


def text_of(value: Any) -> str:
    """Return a value as text: itself, or its JSON."""
    if isinstance(value, str):
        return value
    if type(value) is int:  # as JSON has it, and faster
        return repr(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "surrogateescape")
    if type(value) is float and not math.isfinite(value):
        return str(_finite(value))
    return json_of(value)


def json_of(value: Any) -> str:
    """Return any value as JSON."""
    try:
        return _encode(value)
    except ValueError:  # NaN, or an infinity
        return _encode(_finite(value))


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON in bytes; invalid characters are escaped."""
    return json_of(value).encode("utf-8", "backslashreplace")


def _other(value: Any) -> str:
    return text_of(value) if isinstance(value, bytes | bytearray) else str(value)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_other).encode


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value
