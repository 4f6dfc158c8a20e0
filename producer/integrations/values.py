"""Text of what a log cannot carry as it is: a program's own objects are described, not refused.

Asked only after a log was refused, so that ordinary ones cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InvalidArgumentError
from ..wire.text import text_of


def sendable(fields: Mapping[Any, Any]) -> dict[str, str | bytes]:
    """The fields, each name and each value as text that can be sent; None is left out."""
    return {_unicode(_text(name)): _value(value) for name, value in fields.items() if value is not None}


def _value(value: object) -> str | bytes:
    try:
        text = text_of(value, "")
    except InvalidArgumentError:
        text = _text(value)
    except Exception:  # noqa: BLE001  # the value is somebody else's class
        text = _text(value)
    return text if isinstance(text, bytes) else _unicode(text)


def _text(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001  # likewise
        return f"<{type(value).__qualname__}, whose repr raised {type(error).__qualname__}>"


def _unicode(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
