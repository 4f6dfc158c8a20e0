"""Times as people write them on a command line, and as they read them."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime

from ..text.printable import described

_AGO = re.compile(r"-?(\d{1,15})\s*([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
#: Digits of Unix seconds of 32 bits.
_DIGITS = 10
#: Digits of the nanoseconds of a second.
_NANO_DIGITS = 9
_RULE = "must be now, a time ago such as -15m, -1h or -7d, Unix seconds, or ISO 8601 such as 2026-01-31T12:00:00Z"


def time_of(text: str, now: float) -> int:
    """Unix seconds.

    :param now: Unix seconds.
    :raises ArgumentTypeError: it is no time.
    """
    ago = _AGO.fullmatch(text)
    if text == "now":
        return int(now)
    if ago:
        return max(0, int(now) - int(ago[1]) * _UNITS[ago[2]])
    if text.isascii() and text.isdigit():
        return _seconds(text)
    try:
        # One without a zone is of this machine's.
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
    """Unix seconds, in this machine's zone; anything else as it is.

    :param nanoseconds: of that second, shown to the microsecond; empty, or anything else than digits, is left out.
    """
    try:
        whole = datetime.fromtimestamp(int(seconds), UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(seconds)
    return f"{whole}.{nanoseconds.zfill(_NANO_DIGITS)[:6]}" if is_part_of_a_second(nanoseconds) else whole


def is_part_of_a_second(text: str) -> bool:
    """Whether this is a number of nanoseconds below a second."""
    return text.isascii() and text.isdigit() and len(text) <= _NANO_DIGITS
