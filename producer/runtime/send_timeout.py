"""Patience: how long the sends of this thread wait for memory, or for room in a channel, where whoever sends knows
better than the configuration.

It goes with the thread, not with each call from the API to the budget: nothing on the way has a use for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Patience(threading.local):
    #: Seconds, or None for ever; the empty tuple where nobody has said.
    seconds: float | tuple[()] | None = ()


_mine = _Patience()


@contextmanager
def waiting_at_most(seconds: float | None) -> Iterator[None]:
    """Let what this thread sends inside wait so many seconds; 0 does not wait, None waits for ever."""
    before, _mine.seconds = _mine.seconds, seconds
    try:
        yield
    finally:
        _mine.seconds = before


def or_else(usual: float | None) -> float | None:
    """What the caller's thread was told to wait; ``usual`` if it was told nothing."""
    seconds = _mine.seconds
    return usual if isinstance(seconds, tuple) else seconds
