"""OwnedLock: the lock of what users call, which refuses the thread that holds it instead of waiting for ever."""

from __future__ import annotations

import threading
from _thread import RLock
from typing import Any

from .errors import ProducerError


class _Refusing:
    """What makes a lock that knows its owner refuse it."""

    __slots__ = ()

    def __enter__(self: Any) -> bool:
        """Wait for the lock.

        :raises ProducerError: this thread holds it.
        """
        if self._is_owned():
            raise reentered()
        try:
            return self.acquire()  # type: ignore[no-any-return]  # of an RLock
        except BaseException:  # a signal handler raised, maybe after the lock was taken
            if self._is_owned():
                self.release()
            raise


class OwnedLock(_Refusing, RLock):  # type: ignore[misc]  # CPython lets it be a base, and a wrapper is twice as slow
    """A lock that its owner cannot take again.

    A finalizer or a signal handler runs on the thread that it interrupts. If that thread holds this lock, a plain lock
    would wait for ever and an ``RLock`` would show it a half-made change: this one raises. Use it in ``with`` only.
    Where gevent or eventlet has patched ``threading``, the owner is a greenlet, and the others of its thread wait.
    """

    __slots__ = ()

    def __new__(cls) -> OwnedLock:
        """Make the kind that fits what ``threading`` is at this moment."""
        is_patched = type(threading.RLock()) is not RLock
        return _GreenletLock() if is_patched else super().__new__(cls)  # type: ignore[return-value]  # used alike


class _GreenletLock(_Refusing, threading._RLock):  # type: ignore[misc]  # in Python: asks patched functions
    """The same, made of what a monkey patch replaces."""


def reentered() -> ProducerError:
    """Return the error of a call that interrupted another one on its thread."""
    return ProducerError(
        "a finalizer or a signal handler interrupted a call of the producer and called it again on the same thread; "
        "let another thread do it"
    )
