"""Cursors are decimal digits in base64, and grow from LogGroup to LogGroup: ``MTIz`` is 123.

Source: LogHub protocol, Reading back; the official SDK for what cursors are.
"""

from __future__ import annotations

import base64
import binascii

#: LogGroups in one answer, at most. Source: LogHub protocol, PullLogs.
MAX_PULL_COUNT = 1000
_MOST_DIGITS = 31


def position_of(cursor: str) -> int | None:
    """The number that a cursor is; None for any other cursor, without which whoever asks has to do."""
    try:
        digits = base64.b64decode(cursor, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return None
    return int(digits) if digits.isdigit() and len(digits) <= _MOST_DIGITS else None


def cursor_at(number: int) -> str:
    """The cursor that is a number."""
    return base64.b64encode(b"%d" % number).decode()
