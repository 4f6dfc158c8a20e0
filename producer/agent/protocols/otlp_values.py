"""Values and attributes of OTLP as texts."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from .fields import json_of, text_of, unique_names

_NANOSECONDS = 1_000_000


def attributes_of(pairs: Iterable[Any], prefix: str = "") -> dict[str, str]:
    """Return the attributes that have a value, as headers.

    :param prefix: the prefix of the headers' names.
    """
    texts = [(prefix + pair.key, text) for pair in pairs if (text := value_text(pair.value)) is not None]
    found: dict[str, str] = unique_names(texts)
    return found


def value_text(value: Any) -> str | None:
    """Return an ``AnyValue`` as text, or as JSON if it is not text; None without a value."""
    if value.WhichOneof("value") == "string_value":
        return str(value.string_value)
    found = plain(value)
    return None if found is None else text_of(found) if isinstance(found, float) else json_of(found)


def plain(value: Any) -> Any:
    """Return an ``AnyValue`` as a value of JSON, bytes in base64."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    found = getattr(value, kind)
    if kind == "array_value":
        return [plain(each) for each in found.values]
    if kind == "kvlist_value":
        return plain_attributes(found.values)
    return b64encode(found).decode() if kind == "bytes_value" else found


def plain_attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    """Return attributes as an object of JSON."""
    return unique_names([(pair.key, plain(pair.value)) for pair in pairs])


def milliseconds(nanoseconds: int) -> str:
    """Return a time in milliseconds; empty for 0, an unknown time."""
    return str(nanoseconds // _NANOSECONDS) if nanoseconds else ""


def if_any(number: int) -> str:
    """Return a number as text; empty for 0."""
    return str(number) if number else ""
