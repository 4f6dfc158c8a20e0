"""A stop that is asked for by a signal: what is on its way is ended in order, and a second signal does not wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ..signal_wakeup import wake_for


@contextmanager
def stopping_on_signals(stop: threading.Event) -> Iterator[None]:
    """Have the first SIGTERM or SIGINT set an event, and the next one do what it did before.

    :param stop: is set.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may install handlers
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():  # whoever asks twice does not want to wait
            hurried = before[signal.Signals(number)]
            if callable(hurried):
                hurried(number, frame)
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        wake_for(before)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
