"""Handlers of signals for the time of a block."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from .signal_wakeup import ECHO


@contextmanager
def handling(handlers: Mapping[int, Callable[[int, FrameType | None], object]]) -> Iterator[dict[int, Any]]:
    """Inside the block these handlers are in place; :func:`~.signal_wakeup.wake_for` has them run soon.

    The value of the block are the former handlers, which are put back at its end; what is changed there is put back in
    their place. On a thread that is not the main one, which alone may install handlers, nothing is done.
    """
    former: dict[int, Any] = {}
    if threading.current_thread() is not threading.main_thread():
        yield former
        return
    try:
        for number, handler in handlers.items():
            former[number] = signal.signal(number, handler)
        yield former
    finally:
        for number, handler in former.items():
            if handler is not None:  # one that is not Python's cannot be put back
                signal.signal(number, handler)


class Requests:
    """Tells a signal that asks once more from the echo of the first one.

    coreutils' ``timeout`` sends its signal to its command and then to the group, in which the command is: the command
    has it twice, and was asked once. SIGINT has no echo: it is a key, which somebody may press twice.
    """

    def __init__(self) -> None:
        self._first: dict[int, float] = {}

    def is_echo(self, number: int) -> bool:
        """Whether this one, which has just come, is the first of its kind once more."""
        now = time.monotonic()
        first = self._first.setdefault(number, now)
        return number != signal.SIGINT and first is not now and now - first < ECHO


def call_former(former: Mapping[int, Any], number: int, frame: FrameType | None) -> None:
    """Do what the signal did before, if it had a handler."""
    handler = former.get(number)
    if callable(handler):
        handler(number, frame)
