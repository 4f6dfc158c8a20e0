"""What Ctrl-C and SIGTERM do to a command: both end it in order; a line and the exit code say which of them it was."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Self

#: The exit code of a command that SIGINT has ended.
INTERRUPTED = 128 + signal.SIGINT


class Interrupts:
    """Has SIGTERM raise ``KeyboardInterrupt`` in its block, as SIGINT does: what cleans up after one does after both.

    A SIGTERM that this process was told to ignore, or has a handler for, stays as it is.
    """

    def __init__(self) -> None:
        self._number = signal.SIGINT
        self._installed = False

    def __enter__(self) -> Self:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminate)
            self._installed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _terminate(self, _number: int, _frame: FrameType | None) -> None:
        self._number = signal.SIGTERM
        raise KeyboardInterrupt

    @property
    def exit_code(self) -> int:
        """As a shell gives it: 130 after SIGINT, 143 after SIGTERM."""
        return 128 + self._number

    def tell(self, who: str) -> int:
        """Say what has ended it, in one line; the exit code."""
        print(f"{who}: {'interrupted' if self._number == signal.SIGINT else 'terminated'}", file=sys.stderr)
        return self.exit_code
