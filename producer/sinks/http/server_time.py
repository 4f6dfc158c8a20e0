"""What time a server has, by the ``Date`` of its answer."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

#: The last that Python can express: a moment later nothing could be signed.
_LAST_YEAR = 9999


def clock_offset(date: str | None, now: float) -> float | None:
    """Return how far a server's clock is ahead of this machine's, however far that is; None if its date is none.

    :param date: the ``Date`` of an answer.
    :param now: this machine's time, seconds since the Unix epoch.
    :returns: seconds; negative if the server's clock is behind.
    """
    try:
        moment = parsedate_to_datetime(date or "")
        return None if moment.year >= _LAST_YEAR else moment.timestamp() - now
    except (ValueError, OverflowError, TypeError, OSError):
        return None
