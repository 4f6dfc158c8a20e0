"""The start pattern of logs of several lines (:mod:`.logs`), as the command line gives it."""

from __future__ import annotations

from ...wire.log_start import Logs, StartPattern
from ..errors import InputError


def logs_that_start(start: str | None, max_bytes: int) -> Logs | None:
    """Logs whose first lines match an expression; None without one, where each line is a log.

    :raises InputError: as :func:`start_pattern`.
    """
    return None if start is None else Logs(start_pattern(start), max_bytes)


def start_pattern(pattern: str) -> StartPattern:
    """The expression that a start line matches; it is matched on bytes.

    :raises InputError: it does not compile, or matches every line.
    """
    try:
        return StartPattern(pattern)
    except ValueError as error:
        raise InputError(f"--multiline-start {error}") from error
