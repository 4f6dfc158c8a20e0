"""GIL: let sending threads take the interpreter lock before threads that call ``send``.

An IO thread releases the interpreter lock twice for a batch: to compress it, and for the request. Each time it gets the
lock back only after all threads that run Python, each of which may keep it for 5 ms (``sys.getswitchinterval``). With
ten threads that send without pause, an IO thread spends nearly all its time waiting, the memory fills up, and every
thread waits for it. So an IO thread announces that it needs the lock, and a thread that calls ``send`` then pauses, 50
µs at a time and at most ten times. With a durable channel, where ``send`` stores the records, it does not pause.
Without the native implementation no thread announces anything.
"""

from __future__ import annotations

from .compiled import compiled
from .forks import Stage, call_in_child

_compiled = compiled(f"{__package__}._gil")


def _no_requests() -> bool:
    return False


#: Let threads that need the interpreter lock take it. Return True if there were any. Call it without holding locks.
give_way = _no_requests if _compiled is None else _compiled.give_way

if _compiled is not None:
    # The child has none of the parent's threads.
    call_in_child(_compiled.forget, Stage.LOCKS)
