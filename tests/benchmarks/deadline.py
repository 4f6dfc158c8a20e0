"""End a script in one process at a deadline, whatever hangs in it."""

import faulthandler
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """End the process with status 1 if the block takes longer; stderr names the time and each thread's line."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
