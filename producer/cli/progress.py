"""Show the progress of long work in one line of a terminal, and nothing elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

#: Seconds between two lines.
_INTERVAL_SECONDS = 0.2


class Progress:
    """A line of progress; a context manager that clears the line at its end.

    :param unit: the unit of the count, such as "logs".
    :param rows: True if rows are printed meanwhile: then no line is shown on the terminal that they go to.
    """

    def __init__(self, unit: str, *, rows: bool = True) -> None:
        self._unit, self._count, self._shown_at = unit, 0, 0.0
        self._shown = sys.stderr.isatty() and not (rows and sys.stdout.isatty())

    def add(self, count: int, where: str = "") -> None:
        """Add to the count.

        :param where: the place of the work, such as "shard 0".
        """
        self._count += count
        if self._shown and time.monotonic() - self._shown_at >= _INTERVAL_SECONDS:
            self._shown_at = time.monotonic()
            self._write(f"{self._count:,} {self._unit}{f', {where}' if where else ''}")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown_at:
            self._write("")
