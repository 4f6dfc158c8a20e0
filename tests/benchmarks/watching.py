"""Sample the memory and CPU time of a process."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

_INTERVAL = 0.05

#: Samples: seconds since the first one, resident bytes, CPU seconds since the first one, arrivals so far.
Series = list[tuple[float, float, float, float]]


def _nothing() -> float:
    return 0


class Watch:
    """A sampler of a process on Linux while the block runs; ``arrived`` returns the arrivals so far."""

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
        # The name, in brackets, may contain spaces; user and system time are the 12th and 13th fields after it.
        fields = self._folder.joinpath("stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def recovery(series: Series, outage: tuple[float, float], rate: float, count: int) -> dict[str, float]:
    """Return figures of how a client that sends ``rate`` logs per second caught up after an outage.

    It has caught up when the number of waiting logs is not above its maximum before the outage. ``catch_up_seconds`` is
    the time from the end of the outage until then, ``catch_up_rate`` the logs per second that arrived in that time, and
    ``catch_up_cpu`` the client's CPU seconds in it.

    :param outage: begin and end of the outage in seconds since the first sample.
    :param count: number of all logs; at the last sample all have arrived.
    :returns: the figures, or nothing if the samples do not show that the client caught up.
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
