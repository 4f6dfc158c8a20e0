"""Fields of what senders send, as headers and as JSON: whatever their names and values are, none is lost.

* Of fields with the same name the second is ``NAME_2``, and so on.
* A field with the name of a header that is ours, such as ``timestamp``, is ``field_NAME``.
* A name that is no text is its JSON; of bytes, what they are in UTF-8.
* Numbers that JSON does not have (NaN, infinities) are texts. Bytes that are no UTF-8 are escaped, as ``\\udcff``.

Example: ``{"a": 1, "a": NaN, 7: 2}`` is ``{"a": 1, "a_2": "NaN", "7": 2}``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_TEXT = frozenset((str,))


def unique_names(pairs: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    """Make an object of its pairs; a hook for readers of JSON and of MessagePack."""
    try:
        found = dict(pairs)
    except TypeError:  # a name that is a list or an object
        return _named(pairs)
    return found if len(found) == len(pairs) and _TEXT.issuperset(map(type, found)) else _named(pairs)


def _named(pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    numbers: dict[str, int] = {}  # of each name the last one: names that repeat take no time but their own
    for key, value in pairs:
        name = first = text_of(key)
        while name in named:
            numbers[first] = numbers.get(first, 1) + 1
            name = f"{first}_{numbers[first]}"
        named[name] = value
    return named


def with_own(fields: dict[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Add headers of ours to fields; a field that has the name of one is renamed."""
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
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "surrogateescape")
    if type(value) is float and not math.isfinite(value):
        return str(_finite(value))
    return json_of(value)


def json_of(value: Any) -> str:
    """Return a value as JSON, whatever it is."""
    try:
        return _encode(value)
    except ValueError:  # NaN, or an infinity
        return _encode(_finite(value))


def json_bytes(value: Any) -> bytes:
    """Likewise, as bytes: what is no text in it is escaped."""
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
