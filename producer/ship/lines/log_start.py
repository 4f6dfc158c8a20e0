"""The start pattern of multi-line logs (:mod:`.logs`), as given on the command line."""

from __future__ import annotations

from ...wire.log_start import Logs, StartPattern
from ..errors import InputError


def logs_that_start(start: str | None, max_bytes: int) -> Logs | None:
    """Return the settings of multi-line logs; None without a pattern, where each line is a log.

    :raises InputError: the pattern does not compile, or matches every line.
    """
    return None if start is None else Logs(start_pattern(start), max_bytes)


def start_pattern(pattern: str) -> StartPattern:
    """Compile the pattern of start lines, which matches bytes.

    :raises InputError: it does not compile, or matches every line.
    """
    try:
        return StartPattern(pattern)
    except ValueError as error:
        raise InputError(f"--multiline-start {error}") from error
