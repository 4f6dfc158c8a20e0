"""Who may go first where threads that send and threads that call ``send`` want the interpreter at once.

A thread that sends gives the interpreter up for a batch twice: to pack it, and for the request. Each time it gets it
back only behind all threads that run Python, each of which may keep it for 5 ms (``sys.getswitchinterval``): with ten
that send without a rest such a thread spends nearly all of its time waiting, the memory fills, and everybody waits for
it. So it says that it asks, and who calls ``send`` then pauses for a moment, 50 µs at a time and ten times at the most.
Behind a channel, where ``send`` stores, it does not pause. Without what is compiled nobody asks.
"""

from __future__ import annotations

from .compiled import compiled
from .forks import Stage, call_in_child

_compiled = compiled(f"{__package__}._gil")


def _nobody_asks() -> bool:
    return False


#: Let threads that ask for the interpreter have it; whether some did. To be called without any lock.
give_way = _nobody_asks if _compiled is None else _compiled.give_way

if _compiled is not None:
    # Of the threads that asked in the parent the child has none.
    call_in_child(_compiled.forget, Stage.LOCKS)
