"""OwnedLock: the lock of what users call, which refuses the thread that holds it instead of waiting for ever."""

from __future__ import annotations

from _thread import RLock

from .errors import ProducerError


class OwnedLock(RLock):  # type: ignore[misc]  # CPython lets it be a base, and a wrapper is twice as slow
    """A lock that its owner cannot take again.

    A finalizer or a signal handler runs on the thread that it interrupts. If that thread holds this lock, a plain lock
    would wait for ever and an ``RLock`` would show it a half-made change: this one raises. Use it in ``with`` only.
    """

    __slots__ = ()

    def __enter__(self) -> bool:  # type: ignore[override]  # it is used in ``with`` only
        """Wait for the lock.

        :raises ProducerError: this thread holds it.
        """
        if self._is_owned():  # type: ignore[attr-defined]  # as threading.Condition asks
            raise reentered()
        try:
            return self.acquire()
        except BaseException:  # a signal handler raised, maybe after the lock was taken
            if self._is_owned():  # type: ignore[attr-defined]  # likewise
                self.release()
            raise


def reentered() -> ProducerError:
    """Return the error of a call that interrupted another one on its thread."""
    return ProducerError(
        "a finalizer or a signal handler interrupted a call of the producer and called it again on the same thread; "
        "let another thread do it"
    )
