"""Convert values that a log cannot carry to text. Used only after a log was refused, so that others cost nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..text.printable import repr_of
from ..wire.text import lenient_items
from ..wire.values import message_of

__all__ = ["message_of", "repr_of", "sendable", "text_or_repr"]


def sendable(fields: Mapping[Any, Any]) -> dict[str, bytes]:
    """Return the fields as bytes that can be sent, without those that are None."""
    return dict(lenient_items(fields.items(), None))


def text_or_repr(value: object) -> str:
    """Return ``str(value)``, or its ``repr`` if that raises."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001  # a program's own class
        return repr_of(value)
