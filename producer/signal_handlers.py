"""Handlers of signals for the time of a block."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any


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


def call_former(former: Mapping[int, Any], number: int, frame: FrameType | None) -> None:
    """Do what the signal did before, if it had a handler."""
    handler = former.get(number)
    if callable(handler):
        handler(number, frame)
