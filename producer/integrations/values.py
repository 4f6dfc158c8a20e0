"""Text of what a log cannot carry as it is: a program's own objects are described, not refused.

Asked only after a log was refused, so that ordinary ones cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..text.printable import repr_of
from ..wire.text import lenient_items
from ..wire.values import message_of

__all__ = ["message_of", "repr_of", "sendable", "text_or_repr"]


def sendable(fields: Mapping[Any, Any]) -> dict[str, bytes]:
    """The fields, each name and each value as it can be sent; None is left out."""
    return dict(lenient_items(fields.items(), None))


def text_or_repr(value: object) -> str:
    """What it says of itself; its ``repr``, if that raises."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001  # a program's own class
        return repr_of(value)
