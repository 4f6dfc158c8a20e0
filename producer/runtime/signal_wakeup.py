"""Signals that come just before the main thread blocks: it is woken for their handlers.

Python runs handlers on the main thread, between its own instructions. A signal that comes after the last of these and
before the call that blocks, or that the kernel gives to another thread, interrupts nothing: its handler waits until the
main thread comes back, which in ``sem_wait`` may be never. Python's part in C writes a byte for each signal; a thread
reads it and, until it is answered, interrupts the main thread with a signal that means nothing::

    SIGTERM ──► byte ──► thread ──SIGURG──► main thread leaves its call: Python runs what waits, and our answer

By a signal of its own, for SIGTERM once more would be a second one: whether its handler ran can be seen only too late.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
import types
from collections.abc import Collection
from contextlib import suppress

from .forks import Stage, call_in_child

#: Seconds: signals of one kind that come so soon after the first of them are one request.
ECHO = 0.5
#: The main thread is interrupted so many seconds after a signal, then after twice as many, up to the last.
_FIRST, _LAST = 0.005, 5.0

# Of the main thread, but for what its comment names.
_wanted: set[int] = set()
_pipe: tuple[int, int] | None = None
_identity: tuple[int, int] | None = None  # device and inode of the pipe
_answers = 0  # the other thread reads it


def wake_for(signals: Collection[int]) -> None:
    """Have the handlers of these signals run within some milliseconds, whatever the main thread waits in.

    Nothing is done where SIGURG, which is ignored as a rule, or the descriptor of ``signal.set_wakeup_fd`` is in use
    already, or threads are gevent's: such a main thread has a loop that wakes by itself; nor for no signals. Call it on
    the main thread.
    """
    if not signals or not _possible():
        return
    _wanted.update(signals)
    _listen()


def threads_are_greenlets() -> bool:
    """Whether threads were replaced by the greenlets of gevent or eventlet."""
    return not isinstance(_thread.start_new_thread, types.BuiltinFunctionType)


def _possible() -> bool:
    if not (hasattr(signal, "pthread_kill") and hasattr(signal, "SIGURG")):
        return False
    if threads_are_greenlets():
        return False  # one that reads would stop all
    return signal.getsignal(signal.SIGURG) in (signal.SIG_DFL, _answer)


def _listen() -> None:
    global _pipe, _identity  # noqa: PLW0603  # signals are the process's
    former = _pipe
    if _pipe is None or not all(map(_is_ours, _pipe)):
        _pipe = os.pipe()
        _identity = _identity_of(_pipe[0])
    os.set_blocking(_pipe[1], False)
    other = signal.set_wakeup_fd(_pipe[1], warn_on_full_buffer=False)
    if other not in (-1, _pipe[1], former and former[1]):
        signal.set_wakeup_fd(other)
    if _pipe is not former:
        signal.signal(signal.SIGURG, _answer)
        threading.Thread(target=_watch, args=(_pipe[0],), name="producer-signals", daemon=True).start()


def _is_ours(descriptor: int) -> bool:
    """Whether it is still the pipe's: who makes a daemon of itself closes all, and opens others of the same numbers."""
    return _identity is not None and _identity_of(descriptor) == _identity


def _identity_of(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _answer(_number: int, _frame: types.FrameType | None) -> None:
    """Python runs the handlers of all signals that have come at once: with this one, those that waited."""
    global _answers  # noqa: PLW0603  # signals are the process's
    _answers += 1


def _watch(reading: int) -> None:
    """On a thread of its own, until the pipe is closed."""
    with suppress(OSError):  # the application closed the pipe between the check and the read
        while _is_ours(reading) and (came := os.read(reading, 4096)):
            if _wanted.intersection(came):
                _interrupt()


def _interrupt() -> None:
    before, pause = _answers, _FIRST
    while _answers == before and pause <= _LAST and signal.getsignal(signal.SIGURG) is _answer:
        time.sleep(pause)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGURG)
        pause *= 2


def _after_fork_in_child() -> None:
    """The pipe is the parent's, where no thread of the child reads."""
    global _pipe
    if _pipe is None:
        return
    former, _pipe = _pipe, None
    other = signal.set_wakeup_fd(-1)
    if other not in (-1, former[1]):
        signal.set_wakeup_fd(other)
    for descriptor in filter(_is_ours, former):
        os.close(descriptor)
    _listen()


call_in_child(_after_fork_in_child, Stage.LOCKS)
