"""Logger of recoveries: a sink delivers again, a file can be read again.

The lines have the level INFO, since nothing is wrong. ``producer agent`` shows them with its warnings: each line ends
the trouble that a warning reported.
"""

from __future__ import annotations

from ..runtime.loggers import get_logger

#: Its name, for levels.
RECOVERIES = "producer.agent.recovery"

recoveries = get_logger(RECOVERIES)
