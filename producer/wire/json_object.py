"""Parses lines that are JSON objects: the top-level keys become fields.

Strings are used unchanged. ``true`` and ``false``, numbers, objects and lists become compact JSON text. ``null`` is
left out. Of a repeated key, the last value is used.

:func:`flat_fields` also makes fields of the keys of inner objects. Their names are the keys of all levels, joined by a
separator. Lists, empty objects, and objects below :data:`DEEPEST` levels or under longer names than
:data:`LONGEST_NAME` stay JSON text: without these limits, names could take a hundred times the memory of the line.

Example: ``{"a": {"b": 1}, "c": [2]}`` is ``a`` ``{"b":1}`` and ``c`` ``[2]``; flat it is ``a.b`` ``1`` and ``c``
``[2]``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

#: Limits of flat fields: levels of objects, and characters of a name below which inner names may follow.
DEEPEST, LONGEST_NAME = 16, 128


def parse_json(line: str) -> dict[str, str] | None:
    """Return the fields of a JSON object; None for any other line."""
    loaded = _loaded(line)
    try:
        return None if loaded is None else _fields(loaded.items())
    except (ValueError, RecursionError):
        return None


def parse_flat_json(line: str, separator: str) -> dict[str, str] | None:
    """Return the fields of a JSON object and of its inner objects; None for any other line."""
    loaded = _loaded(line)
    try:
        return None if loaded is None else _fields(_flat(loaded, "", separator, DEEPEST))
    except (ValueError, RecursionError):
        return None


def json_text(value: Any) -> str:
    """Return a value as the text of its field."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _loaded(line: str) -> dict[str, Any] | None:
    # This check is cheaper than the exception for nearly every line of another format.
    if not line.lstrip().startswith("{"):
        return None
    try:
        loaded: dict[str, Any] = json.loads(line)
    # The line nests too deeply for the parser, or has too long an integer for Python.
    except (ValueError, RecursionError):
        return None
    return loaded


def _fields(items: Any) -> dict[str, str]:
    return {key: json_text(value) for key, value in items if value is not None}


def _flat(value: Mapping[str, Any], prefix: str, separator: str, levels: int) -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        name = prefix + key
        if isinstance(inner, dict) and inner and levels > 1 and len(name) <= LONGEST_NAME:
            yield from _flat(inner, name + separator, separator, levels - 1)
        else:
            yield name, inner
