"""OwnedLock: a lock that refuses the thread that holds it, instead of deadlocking."""

from __future__ import annotations

import threading
from _thread import RLock
from typing import Any

from .errors import ProducerError


class _Refusing:
    """Mixin that makes a lock with an owner refuse it."""

    __slots__ = ()

    def __enter__(self: Any) -> bool:
        """Wait for the lock.

        :raises ProducerError: this thread holds it.
        """
        if self._is_owned():
            raise reentered()
        try:
            return self.acquire()  # type: ignore[no-any-return]  # of an RLock
        except BaseException:  # a signal handler raised, perhaps after the lock was taken
            if self._is_owned():
                self.release()
            raise


class OwnedLock(_Refusing, RLock):  # type: ignore[misc]  # a base in CPython; a wrapper is twice as slow
    """A lock that its owner cannot take again.

    A finalizer or a signal handler runs on the thread that it interrupts. If that thread holds this lock, a plain lock
    would deadlock, and an ``RLock`` would expose a half-made change: this one raises. Use it in ``with`` only. If
    gevent or eventlet has patched ``threading``, the owner is a greenlet, and other greenlets of its thread wait.
    """

    __slots__ = ()

    def __new__(cls) -> OwnedLock:
        """Create the kind that fits the current ``threading`` module."""
        is_patched = type(threading.RLock()) is not RLock  # noqa: TID251  # not to hold it
        return _GreenletLock() if is_patched else super().__new__(cls)  # type: ignore[return-value]  # used alike


class _GreenletLock(_Refusing, threading._RLock):  # type: ignore[misc]  # in Python: asks patched functions
    """An :class:`OwnedLock` built on functions that gevent and eventlet replace."""


def reentered() -> ProducerError:
    """Build the error for a re-entrant call that would deadlock."""
    return ProducerError(
        "a finalizer or a signal handler interrupted a call of the producer and called it again on the same thread: "
        "make that call on another thread"
    )
