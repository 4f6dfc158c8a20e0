"""The check of a time limit that a caller gives."""

from __future__ import annotations

from ..model.errors import InvalidArgumentError
from ..text.printable import described


def is_duration(value: object) -> bool:
    """Return True for seconds, at least 0."""
    return isinstance(value, int | float) and value >= 0


def check_timeout(timeout: float | None) -> None:
    """Check a time limit that may be None.

    :raises InvalidArgumentError: it is neither None nor seconds, at least 0.
    """
    if timeout is not None and not is_duration(timeout):
        raise InvalidArgumentError(f"timeout: must be None or seconds, at least 0, got {described(timeout)}")
