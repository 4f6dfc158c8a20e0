"""A process seen from outside: its memory and CPU over time."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_INTERVAL = 0.1

#: Samples: seconds since the beginning, resident bytes, CPU seconds since the beginning.
Series = list[tuple[float, float, float]]


class Watch:
    """Samples a process ten times a second, while the block runs; Linux only, elsewhere there are no samples.

    :ivar series: the samples.
    """

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.series: Series = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        if not self._folder.exists():
            return
        begun, used = time.monotonic(), self._cpu()
        while not self._ended.wait(_INTERVAL) and self._folder.exists():
            self.series.append((time.monotonic() - begun, self._resident(), self._cpu() - used))

    def _resident(self) -> float:
        return float(int(self._folder.joinpath("statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))

    def _cpu(self) -> float:
        # The name, in brackets, may hold spaces; user and system time are the 12th and 13th behind it.
        fields = self._folder.joinpath("stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
