"""Text of what a log cannot carry as it is: a program's own objects are described, not refused.

Asked only after a log was refused, so that ordinary ones cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..wire.text import lenient_items


def sendable(fields: Mapping[Any, Any]) -> dict[str, bytes]:
    """The fields, each name and each value as it can be sent; None is left out."""
    return dict(lenient_items(fields.items(), None))
