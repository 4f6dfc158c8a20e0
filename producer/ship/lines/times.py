"""The time that a line tells, where it can be told without a guess: with date, year and zone.

Known are ISO 8601 (``2024-01-31T12:00:00.5+01:00``) and the form of access logs (``31/Jan/2024:12:00:00 +0100``), in
the field ``time``, ``timestamp``, ``@timestamp`` or ``ts``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache

#: The fields that tell the time; the first one that a line has counts.
TIME_FIELDS = ("time", "timestamp", "@timestamp", "ts")

_EARLIEST, _LATEST = datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(2**32 - 1, UTC)


# Neighbours in a log tell the same second.
@lru_cache(maxsize=4096)
def moment_of(text: str) -> datetime | None:
    """The moment that a text names; None if it names none, or one that LogHub has no number for."""
    try:
        moment = datetime.fromisoformat(text) if text[4:5] == "-" else datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z")
        return moment if moment.tzinfo is not None and _EARLIEST <= moment <= _LATEST else None
    except (ValueError, OverflowError):
        return None


def time_of_fields(fields: Mapping[str, str]) -> datetime | None:
    """The moment that a line's fields tell."""
    name = next((name for name in TIME_FIELDS if name in fields), None)
    return None if name is None else moment_of(fields[name])
