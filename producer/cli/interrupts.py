"""End a command in order at Ctrl-C, SIGTERM and SIGHUP, with a line and an exit code for each."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from ..runtime.signals import Requests, runs_handlers
from .output import tell

# The line's words for each signal. A terminal sends SIGHUP when it is closed or loses its connection.
_WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "ended with its terminal (SIGHUP)"}


class Interrupt(KeyboardInterrupt):
    """Raised in the main thread to end a command.

    A subclass is needed: once a plain ``KeyboardInterrupt`` has left an ``exec`` of text, as in dataclasses, CPython
    ends the process by SIGINT, whatever the exit code.
    """


class Interrupts:
    """The signals that may end a command, and the one that did."""

    def __init__(self) -> None:
        self._number: int = signal.SIGINT
        self._requests = Requests()

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Have SIGINT, SIGTERM and SIGHUP raise :class:`Interrupt` in the block.

        A signal that this process ignores, for example under ``nohup``, or that has a handler, keeps its effect.
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
        if self._requests.is_echo(number):  # it would interrupt the cleanup after the first one
            return
        self._number = number
        raise Interrupt

    @property
    def exit_code(self) -> int:
        """The exit code as in a shell: 130 after SIGINT, 143 after SIGTERM, 129 after SIGHUP."""
        return 128 + self._number

    def report(self, command: str) -> int:
        """Print a line with the signal that ended the command, and return the exit code."""
        with suppress(OSError):  # a terminal that is gone
            tell(f"{command}: {_WORDS[signal.Signals(self._number).name]}")
        return self.exit_code
