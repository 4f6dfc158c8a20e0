"""The loggers of the package: what a handler of the application's raises changes nothing for records and events.

They are the application's own loggers, by name. But ``logging`` lets what a handler raises come out of the call that
logged, and the threads that deliver log in the middle of their work.
"""

from __future__ import annotations

import functools
import logging
import traceback
from collections.abc import Callable


def get_logger(name: str) -> logging.Logger:
    """The logger of ``logging``. What raises in it is shown on the standard error, as the handlers of ``logging`` do
    themselves (``logging.raiseExceptions``): it is not logged, since that would raise again.
    """
    logger = logging.getLogger(name)  # noqa: TID251
    if "handle" not in vars(logger):  # the application may have made it before, and of a class of its own
        vars(logger)["handle"] = functools.partial(_guarded, logger.handle)
    return logger


def _guarded(handle: Callable[[logging.LogRecord], None], record: logging.LogRecord) -> None:
    try:
        handle(record)
    except Exception:  # noqa: BLE001  # whatever a user's handler raises
        show()


def show() -> None:
    """Write the exception that is being handled to the standard error."""
    if logging.raiseExceptions:
        traceback.print_exc()
