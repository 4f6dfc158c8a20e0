"""The time of an event from its header ``timestamp``, as all senders outside LogHub read it."""

from __future__ import annotations

#: Header with milliseconds since the epoch.
STAMP = "timestamp"
#: Digits of the last time, in the year 2286.
_MOST_DIGITS = 13


def milliseconds(text: str | None, default: int) -> int:
    """Return a header's milliseconds since the epoch, or the default if it is not a valid time."""
    usable = text is not None and text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    return int(text or 0) if usable else default
