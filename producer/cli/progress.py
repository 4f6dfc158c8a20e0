"""Progress of long work: one line of a terminal, rewritten; nothing elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

#: Seconds between two lines.
_OFTEN = 0.2


class Progress:
    """A context manager; the line is gone at its end.

    :param unit: what is counted.
    :param rows: whether rows are printed meanwhile, into which the line would run on one terminal.
    """

    def __init__(self, unit: str, *, rows: bool = True) -> None:
        self._unit, self._count, self._told = unit, 0, 0.0
        self._shown = sys.stderr.isatty() and not (rows and sys.stdout.isatty())

    def add(self, count: int, where: str = "") -> None:
        """So many more; where the work is."""
        self._count += count
        if self._shown and time.monotonic() - self._told >= _OFTEN:
            self._told = time.monotonic()
            self._write(f"{self._count:,} {self._unit}{f', {where}' if where else ''}")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._told:
            self._write("")
