"""Locks that an exception raised by a signal handler cannot leave locked.

From CPython 3.14 on, a signal handler may run between the return of a built-in ``__enter__`` and the block of
``with``. If it raises, as Ctrl-C does, ``__exit__`` is not called, and a :class:`threading.Lock` stays locked. An
``__enter__`` in Python has no such gap. Earlier versions have no gap, so they get the built-in locks, which are faster.

From 3.14 on ``Lock`` is re-entrant, since only a lock with an owner can tell. No code may rely on that.
"""

from __future__ import annotations

import sys
import threading
from _thread import RLock as _BuiltInRLock
from typing import Any


class _RLock(_BuiltInRLock):  # type: ignore[misc]  # a base in CPython
    """A re-entrant lock with an ``__enter__`` in Python. Its count shows whether an interrupted call took the lock."""

    __slots__ = ()

    def __new__(cls) -> Any:
        """Create a lock; that of gevent or eventlet where they have patched ``threading``."""
        lock: object = threading.RLock()  # noqa: TID251  # not to hold it
        return super().__new__(cls) if type(lock) is _BuiltInRLock else lock

    def __enter__(self: Any) -> bool:  # type: ignore[override]  # as with calls it
        held = self._recursion_count()
        try:
            return self.acquire()  # type: ignore[no-any-return]  # of an RLock
        except BaseException:
            if self._recursion_count() > held:
                self.release()
            raise


if sys.version_info >= (3, 14):
    RLock = Lock = _RLock
else:

    def Lock() -> Any:  # noqa: N802  # called as the class is
        """Create a lock; that of gevent or eventlet where they have patched ``threading``, perhaps after the import."""
        return threading.Lock()  # noqa: TID251  # has no gap here

    def RLock() -> Any:  # noqa: N802  # called as the class is
        """Create a re-entrant lock, as :func:`Lock`."""
        return threading.RLock()  # noqa: TID251  # has no gap here
