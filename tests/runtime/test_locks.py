"""Locks that an interrupted ``with`` does not leave held."""

import sys
import threading

import pytest

from producer.runtime import locks


class _Interrupted(locks._RLock):
    """A lock whose acquisition ends as one that a signal handler interrupts, once it has the lock."""

    interrupted = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        taken = super().acquire(blocking, timeout)
        if self.interrupted:
            raise KeyboardInterrupt
        return taken


@pytest.mark.skipif(not hasattr(locks._RLock, "_recursion_count"), reason="the lock is for Python 3.14")
def test_an_interrupted_with_leaves_the_lock_as_it_was() -> None:
    """An interrupt between the acquisition and the block leaves the lock's count as it was."""
    lock = _Interrupted()
    for held in (0, 1):
        assert held == 0 or lock.acquire()
        lock.interrupted = True
        with pytest.raises(KeyboardInterrupt), lock:
            pytest.fail("the block ran")
        lock.interrupted = False
        assert lock._recursion_count() == held  # type: ignore[attr-defined]


def test_python_3_14_has_these_locks_and_earlier_versions_the_built_in_ones() -> None:
    """From Python 3.14 on the locks of the producer have an ``__enter__`` in Python; before, they are the fast ones."""
    own = sys.version_info >= (3, 14)
    built_in = type(threading.Lock()), type(threading.RLock())
    assert (type(locks.Lock()), type(locks.RLock())) == ((locks._RLock,) * 2 if own else built_in)
