"""Cursors of PullLogs: the position of the next LogGroup to read, as base64 of its decimal digits.

Position 0 is a shard's first LogGroup, and positions have no gaps. ``MTI=`` is position 12.
"""

from __future__ import annotations

import base64
import binascii

from ..errors import ApiError


def encode_cursor(position: int) -> str:
    """Return the cursor of ``position``."""
    return base64.b64encode(str(position).encode()).decode()


def decode_cursor(cursor: str) -> int:
    """Return the position of ``cursor``. The official SDK may append a line feed to a cursor.

    :raises ApiError: ``InvalidCursor``, this server did not make it.
    """
    try:
        digits = base64.b64decode(cursor.strip(), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        digits = ""
    if not digits.isdigit() or len(digits) > 18:
        raise ApiError("InvalidCursor", f"cursor is {cursor[:64]!r}: use one that GetCursor or PullLogs returned")
    return int(digits)
