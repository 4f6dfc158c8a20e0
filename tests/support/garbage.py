"""Keeps the garbage collector out of what is counted: the finalizers that it runs are somebody else's steps."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Nothing is collected inside the block; what was garbage before it is collected first."""
    gc.collect()
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
