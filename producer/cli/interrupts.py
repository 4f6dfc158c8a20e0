"""What Ctrl-C, SIGTERM and SIGHUP do to a command: each ends it in order; a line and the exit code say which it was."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from ..runtime.signals import Requests, runs_handlers
from .output import tell

# What a command says that the signal has ended. A terminal that is closed, or whose connection is lost, sends SIGHUP.
_WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "ended with its terminal (SIGHUP)"}


class Interrupt(KeyboardInterrupt):
    """Ends a command as Ctrl-C does.

    A class of its own: CPython ends a process by SIGINT, whatever its exit code, once a ``KeyboardInterrupt`` itself
    has left an ``exec`` of text, as dataclasses have it.
    """


class Interrupts:
    """What has ended a command; see :meth:`raised`."""

    def __init__(self) -> None:
        self._number: int = signal.SIGINT
        self._requests = Requests()

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Have SIGINT, SIGTERM and SIGHUP raise :class:`Interrupt` in the block.

        One that this process was told to ignore, as ``nohup`` does, or has a handler for, stays as it is.
        """
        known = {number: signal.getsignal(number) for number in signal.Signals if number.name in _WORDS}
        former = {number: it for number, it in known.items() if it in (signal.SIG_DFL, signal.default_int_handler)}
        if not runs_handlers():
            former.clear()
        for number in former:
            signal.signal(number, self._raise)
        try:
            yield
        finally:
            for number, handler in former.items():
                if signal.getsignal(number) == self._raise:
                    signal.signal(number, handler)

    def _raise(self, number: int, _frame: FrameType | None) -> None:
        if self._requests.is_echo(number):  # it would end what cleans up after the first one
            return
        self._number = number
        raise Interrupt

    @property
    def exit_code(self) -> int:
        """As a shell gives it: 130 after SIGINT, 143 after SIGTERM, 129 after SIGHUP."""
        return 128 + self._number

    def tell(self, who: str) -> int:
        """Say what has ended it, in one line; the exit code."""
        with suppress(OSError):  # a terminal that is gone
            tell(f"{who}: {_WORDS[signal.Signals(self._number).name]}")
        return self.exit_code
