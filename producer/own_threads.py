"""Which threads work for producers at this moment, so that what they log can be told from what users log.

A handler that sends log records must not send those that its sending causes: each would cause the next.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .forks import Stage, call_in_child

# Of threads, and how many times each began; only its own thread changes an entry.
_at_work: dict[int, int] = {}


@contextmanager
def at_work() -> Iterator[None]:
    """What the caller's thread does inside, it does for a producer."""
    ident = threading.get_ident()
    before = _at_work.get(ident, 0)
    _at_work[ident] = before + 1
    try:
        yield
    finally:
        if before:
            _at_work[ident] = before
        else:
            _at_work.pop(ident, None)


def is_at_work(ident: int | None) -> bool:
    """Whether the thread with that ``threading.get_ident()`` works for a producer."""
    return ident in _at_work


# The child has one thread, which is no producer's.
call_in_child(_at_work.clear, Stage.LOCKS)
