"""A process seen from outside: its memory and CPU over time."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

_INTERVAL = 0.05

#: Samples: seconds since the beginning, resident bytes, CPU seconds since the beginning, what had arrived by then.
Series = list[tuple[float, float, float, float]]


def _nothing() -> float:
    return 0


class Watch:
    """Samples a process on Linux while the block runs; ``arrived`` says how much has arrived so far."""

    def __init__(self, pid: int, arrived: Callable[[], float] = _nothing) -> None:
        self._arrived = arrived
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
            at = time.monotonic() - begun
            self.series.append((at, self._resident(), self._cpu() - used, self._arrived()))

    def _resident(self) -> float:
        return float(int(self._folder.joinpath("statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))

    def _cpu(self) -> float:
        # The name, in brackets, may hold spaces; user and system time are the 12th and 13th behind it.
        fields = self._folder.joinpath("stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def recovery(series: Series, outage: tuple[float, float], rate: float, count: int) -> dict[str, float]:
    """How a client that sends ``rate`` logs a second caught up after an outage, as figures of its answer.

    It has caught up when no more logs wait than at most before the outage. ``catch_up_seconds`` is how long that took
    from the end of the outage on, ``catch_up_rate`` the logs a second that arrived meanwhile, and ``catch_up_cpu`` its
    CPU seconds meanwhile.

    :param outage: its begin and its end, seconds from the first sample on.
    :param count: all logs; they have arrived at the last sample.
    :returns: nothing if the samples do not show it.
    """
    begin, end = outage
    whole = series[-1][3] if series else 0
    logs = [(at, cpu, arrived / whole * count) for at, _, cpu, arrived in series] if whole else []
    before = [min(rate * at, count) - got for at, _, got in logs if at < begin]
    behind = [(at, cpu, got) for at, cpu, got in logs if at >= end]
    caught = (one for one in behind if min(rate * one[0], count) - one[2] <= max(before, default=0))
    last = next(caught, None)
    if last is None or last[0] <= behind[0][0]:
        return {}
    seconds, cpu, got = (after - first for after, first in zip(last, behind[0], strict=True))
    return {"catch_up_seconds": seconds, "catch_up_rate": got / seconds, "catch_up_cpu": cpu}
