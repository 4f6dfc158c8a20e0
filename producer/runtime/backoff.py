"""Exponential backoff: pauses that double from failure to failure, up to a longest one.

tenacity's ``wait_exponential`` has the same formula, but reads the number of failures from the state of a ``Retrying``,
which no caller here has: gates, supervisors and sinks wait in their own ways.
"""

from __future__ import annotations

_MOST_DOUBLINGS = 64  # a larger power would overflow; the longest pause is reached before


def pause_after(failures: int, first: float, longest: float) -> float:
    """Return the pause after some failures in a row, at least one, seconds.

    :param first: the pause after the first one, seconds.
    :param longest: the longest pause, seconds.
    """
    return min(first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), longest)


class Backoff:
    """The pauses of one caller; see :func:`pause_after` for the parameters."""

    __slots__ = ("_failures", "_first", "_longest")

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest, self._failures = first, longest, 0

    def next_pause(self) -> float:
        """Count a failure; return the pause after it, seconds."""
        self._failures += 1
        return pause_after(self._failures, self._first, self._longest)

    def reset(self) -> None:
        """Begin again with the first pause."""
        self._failures = 0
