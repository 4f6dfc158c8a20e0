"""An end for a script that runs in one process: whatever hangs in it, the process does not."""

import faulthandler
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """End the process with status 1 if the block takes longer; stderr tells the time and where each thread was."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
