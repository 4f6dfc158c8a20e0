"""Lines of the log from the threads that deliver: what a handler of the application's raises concerns no record."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable


def tell(say: Callable[..., object], *arguments: object, **named: object) -> None:
    """Call ``say``, which logs. What a handler or filter raises is shown on the standard error, as the handlers of
    ``logging`` do themselves (``logging.raiseExceptions``), and stops nothing: it is not logged, since that would raise
    again.
    """
    try:
        say(*arguments, **named)
    except Exception:  # noqa: BLE001  # whatever a user's handler raises
        if logging.raiseExceptions:
            traceback.print_exc()
