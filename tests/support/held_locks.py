"""Hold a lock across forks, and report its use."""

import threading
from collections.abc import Callable
from typing import Any


class AskedFor:
    """A lock that reports when a thread asks for it, and then blocks as any lock does.

    :param asked: called before the lock is acquired.
    :param then: called after the lock is acquired.
    :param lock: an ``RLock``; None makes one.
    """

    def __init__(
        self, asked: Callable[[], object], then: Callable[[], object] = lambda: None, lock: Any = None
    ) -> None:
        self.lock, self._asked, self._then = lock or threading.RLock(), asked, then

    def acquire(self, *, timeout: float = -1) -> bool:
        self._asked()
        found = self.lock.acquire(timeout=timeout)
        self._then()
        return bool(found)

    def release(self) -> None:
        self.lock.release()

    def _is_owned(self) -> bool:
        return bool(self.lock._is_owned())
