"""A stop that is asked for by a signal: what is on its way is ended in order, and a second signal does not wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ..runtime.signal_handlers import Requests, call_former, handling
from ..runtime.signal_wakeup import wake_for


@contextmanager
def stopping_on_signals(stop: threading.Event) -> Iterator[None]:
    """Have the first SIGTERM or SIGINT set an event, and the next one do what it did before.

    :param stop: is set.
    """
    requests = Requests()

    def handle(number: int, frame: FrameType | None) -> None:
        if requests.is_echo(number):
            return
        if stop.is_set():  # whoever asks twice does not want to wait
            call_former(former, number, frame)
        stop.set()

    with handling({signal.SIGTERM: handle, signal.SIGINT: handle}) as former:
        wake_for(former)
        yield
