"""Send timeout: override, for the current thread, how long its sends wait for memory or channel capacity.

It is a thread-local value, so that it need not be passed through every call from the API to the memory budget.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Patience(threading.local):
    #: Seconds, or None for no limit; the empty tuple if not overridden.
    seconds: float | tuple[()] | None = ()


_mine = _Patience()


@contextmanager
def waiting_at_most(seconds: float | None) -> Iterator[None]:
    """Limit the waits of this thread's sends inside the block.

    :param seconds: the limit; 0 to not wait, None for no limit.
    """
    before, _mine.seconds = _mine.seconds, seconds
    try:
        yield
    finally:
        _mine.seconds = before


def or_else(usual: float | None) -> float | None:
    """Return this thread's override; ``usual`` if there is none."""
    seconds = _mine.seconds
    return usual if isinstance(seconds, tuple) else seconds
