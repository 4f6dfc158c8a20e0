"""Measure the CPU seconds of a process and its descendants."""

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path


class CpuOfTree:
    """CPU seconds of a process and all its descendants, also of those that no parent has waited for."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._ticks: dict[tuple[int, str], int] = {}  # by process id and start time

    def update(self) -> None:
        """Record the CPU time that each living process has used so far."""
        below: dict[int, list[tuple[int, list[str]]]] = defaultdict(list)
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # the process has ended
                state = path.read_text().rpartition(")")[2].split()
                below[int(state[1])].append((int(path.parent.name), state))
        found = [each for each in below[os.getpid()] if each[0] == self._root]
        while found:
            number, state = found.pop()
            self._ticks[number, state[19]] = int(state[11]) + int(state[12])
            found += below[number]

    @property
    def seconds(self) -> float:
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")
