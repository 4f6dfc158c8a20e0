"""Parse times of a command line, and format times for people."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime

from ..text.printable import described

_AGO = re.compile(r"-?(\d{1,15})\s*([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
#: The limit of digits of Unix seconds in 32 bits.
_DIGITS = 10
#: The limit of digits of nanoseconds within a second.
_NANO_DIGITS = 9
_RULE = "must be now, a time ago such as -15m, -1h or -7d, Unix seconds, or ISO 8601 such as 2026-01-31T12:00:00Z"


def time_of(text: str, now: float) -> int:
    """Parse a time into Unix seconds.

    :param now: the current time, Unix seconds.
    :raises ArgumentTypeError: the text is not a time.
    """
    ago = _AGO.fullmatch(text)
    if text == "now":
        return int(now)
    if ago:
        return max(0, int(now) - int(ago[1]) * _UNITS[ago[2]])
    if text.isascii() and text.isdigit():
        return _seconds(text)
    try:
        # A time without a zone is in this machine's zone.
        return int(datetime.fromisoformat(text).astimezone(UTC).timestamp())
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"{_RULE}, got {described(text)}") from error


def _seconds(text: str) -> int:
    if len(text) > _DIGITS or int(text) >= 1 << 32:
        raise argparse.ArgumentTypeError(
            f"{_RULE}; {described(text)} is too large for seconds: are these milliseconds?"
        )
    return int(text)


def shown(seconds: str | int, nanoseconds: str = "") -> str:
    """Format Unix seconds in this machine's zone. Any other text is returned unchanged.

    :param nanoseconds: the nanoseconds within the second, shown to the microsecond; empty to leave them out.
    """
    try:
        whole = datetime.fromtimestamp(int(seconds), UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(seconds)
    return f"{whole}.{nanoseconds.zfill(_NANO_DIGITS)[:6]}" if is_part_of_a_second(nanoseconds) else whole


def is_part_of_a_second(text: str) -> bool:
    """Return True if the text is a number of nanoseconds below a second."""
    return text.isascii() and text.isdigit() and len(text) <= _NANO_DIGITS
