"""Cursors: decimal numbers in base64, which grow from LogGroup to LogGroup (``MTIz`` is 123).

Source: LogHub protocol, Reading back; the official SDK for the form of cursors.
"""

from __future__ import annotations

import base64
import binascii

#: Maximum LogGroups of a response. Source: LogHub protocol, PullLogs.
MAX_PULL_COUNT = 1000
_MOST_DIGITS = 31


def position_of(cursor: str) -> int | None:
    """Return the number of a cursor; None for a cursor of another form."""
    try:
        digits = base64.b64decode(cursor, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return None
    return int(digits) if digits.isdigit() and len(digits) <= _MOST_DIGITS else None


def cursor_at(number: int) -> str:
    """Return the cursor of a number."""
    return base64.b64encode(b"%d" % number).decode()
