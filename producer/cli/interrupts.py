"""What Ctrl-C, SIGTERM and SIGHUP do to a command: each ends it in order; a line and the exit code say which it was."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

from ..runtime.signal_handlers import Requests
from .output import tell

# What a command says that the signal has ended. A terminal that is closed, or whose connection is lost, sends SIGHUP.
_WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "ended with its terminal (SIGHUP)"}


class Interrupts:
    """Has SIGTERM and SIGHUP raise ``KeyboardInterrupt`` in its block, as SIGINT does: what cleans up after one does
    after all.

    One that this process was told to ignore, as ``nohup`` does, or has a handler for, stays as it is.
    """

    def __init__(self) -> None:
        self._number: int = signal.SIGINT
        self._handler, self._requests = self._end, Requests()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._exchange(signal.SIG_DFL, self._handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if threading.current_thread() is threading.main_thread():
            self._exchange(self._handler, signal.SIG_DFL)

    @staticmethod
    def _exchange(one: object, other: Any) -> None:
        for name in ("SIGTERM", "SIGHUP"):  # there is no SIGHUP on Windows
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is one:
                signal.signal(number, other)

    def _end(self, number: int, _frame: FrameType | None) -> None:
        if self._requests.is_echo(number):  # it would end what cleans up after the first one
            return
        self._number = number
        raise KeyboardInterrupt

    @property
    def exit_code(self) -> int:
        """As a shell gives it: 130 after SIGINT, 143 after SIGTERM, 129 after SIGHUP."""
        return 128 + self._number

    def tell(self, who: str) -> int:
        """Say what has ended it, in one line; the exit code."""
        with suppress(OSError):  # a terminal that is gone
            tell(f"{who}: {_WORDS[signal.Signals(self._number).name]}")
        return self.exit_code
