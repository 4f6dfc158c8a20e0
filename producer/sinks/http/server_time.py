"""The clock of a server, by the ``Date`` of its response."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

#: The largest time that Python can express: later, nothing could be signed.
_LAST_YEAR = 9999


def clock_offset(date: str | None, now: float) -> float | None:
    """Return the offset of a server's clock from this machine's; None if the date is invalid.

    :param date: the ``Date`` of a response.
    :param now: this machine's time, seconds since the Unix epoch.
    :returns: seconds, positive if the server's clock is ahead; negative if it is behind.
    """
    try:
        moment = parsedate_to_datetime(date or "")
        return None if moment.year >= _LAST_YEAR else moment.timestamp() - now
    except (ValueError, OverflowError, TypeError, OSError):
        return None
