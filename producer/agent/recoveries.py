"""Logger of recoveries, such as a sink that delivers again or a file that can be read again.

Its lines have the level INFO. ``producer agent`` shows them like warnings, since each one ends a trouble that a warning
reported.
"""

from __future__ import annotations

from ..runtime.loggers import get_logger

#: The logger's name, to set its level.
RECOVERIES = "loghub.agent.recovery"

recoveries = get_logger(RECOVERIES)
