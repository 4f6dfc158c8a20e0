"""Limit the memory and CPU of a whole agent.

The sum of the components' own limits is checked before anything starts. Events need more memory than their bytes:
objects, requests, and free memory that Python keeps. While the agent runs, it therefore measures its process, and lets
nothing into the channels while the process is too large. CPU is limited by pauses.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...model.options import option
from ...runtime.clock import Clock
from ...runtime.locks import Lock
from ...runtime.process_memory import resident_bytes

#: Bytes that an agent needs without its components.
PROCESS_BYTES = 40 << 20
#: Bytes assumed for a component that declares no limit: a few blocks in flight.
COMPONENT_BYTES = 8 << 20
#: Seconds of unused CPU time that may be used at once, and the longest pause in seconds.
_BURST, _LONGEST_PAUSE = 0.2, 1.0
#: The largest debt, in seconds. So one batch a minute still passes if other code of the process uses the whole share.
_MOST_DEBT = 60.0
#: Share of the limit that is reserved for data in flight, and the minimum reserve in bytes. A delivery of short lines
#: consists of objects that need many times its bytes.
_IN_FLIGHT, _LEAST_IN_FLIGHT = 0.1, 16 << 20
#: Seconds between two calls of ``malloc_trim``, each of which takes some milliseconds.
_TRIM_SECONDS = 1.0
#: Seconds between two measurements of the process.
_MEASURE_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The keys of ``[agent]`` that limit the process."""

    max_memory_bytes: int | None = option(
        None, least=1, unit="bytes", doc="memory of the process, at least the sum of its components' limits"
    )
    max_cpu: float | None = option(None, least=0.01, doc="the number of processors to use, such as 0.5")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions(Limits):
    """All keys of ``[agent]``."""

    name: str = option("agent", doc="the agent's name")
    state: Path = option(Path("loghub-agent"), doc="the directory for the components' state")
    monitoring: str | int = option("", least=1, most=65_535, doc="where to serve metrics: host:port, or a port")
    stop_timeout: float = option(
        30.0, least=0.001, most=31_536_000, unit="seconds", doc="the longest graceful shutdown"
    )
    tap: bool = option(False, doc="let producer agent tap show events, where the monitoring is on loopback")


class Pace:
    """A limit on CPU: it makes sources and sinks pause.

    CPU time of the whole process counts, whichever thread used it.

    :param share: the number of processors; None for no limit.
    :param used: returns the CPU time of the process, in seconds.
    """

    def __init__(self, share: float | None, clock: Clock, used: Callable[[], float] = time.process_time) -> None:
        self.share = share
        self._clock, self._used = clock, used
        self._lock = Lock()  # guards _debt and _last
        self._debt = 0.0
        self._last = clock.monotonic(), used()

    def pause(self) -> float:
        """Return the seconds to wait before the next work; 0 for none."""
        share = self.share
        if share is None:
            return 0.0
        with self._lock:
            (then, before), (now, used) = self._last, (self._clock.monotonic(), self._used())
            self._last = now, used
            debt = self._debt + used - before - share * (now - then)
            self._debt = min(max(-_BURST * share, debt), _MOST_DEBT * share)
            return min(_LONGEST_PAUSE, self._debt / share) if self._debt > 0 else 0.0

    def rest(self, wait: Callable[[float], object], most: float = _MOST_DEBT) -> None:
        """Wait until the process is within its share. One batch may use far more than one pause makes up for.

        :param wait: sleeps for the given seconds; returns True to end the rest.
        :param most: the longest rest, in seconds, approximately.
        """
        end = self._clock.monotonic() + most
        while (pause := self.pause()) > 0 and self._clock.monotonic() < end:
            if wait(pause):
                return


def give_back() -> None:
    """Return freed memory that the C library keeps to the system, where ``malloc_trim`` exists."""
    import ctypes  # rarely needed

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Memory:
    """A limit on memory: it makes sources wait while the process is nearly at its limit.

    :param limit: bytes; None for no limit.
    :param used: returns the memory of the process, in bytes.
    :param give_back: returns freed memory to the system.
    """

    def __init__(
        self,
        limit: int | None,
        clock: Clock,
        used: Callable[[], int] = resident_bytes,
        give_back: Callable[[], object] = give_back,
    ) -> None:
        self.limit = limit
        self._clock, self._used, self._give_back = clock, used, give_back
        self._next_measurement, self._full = clock.monotonic(), False
        self._next_trim = clock.monotonic()

    def is_full(self) -> bool:
        """Return True if no more events may enter the channels."""
        limit, now = self.limit, self._clock.monotonic()
        if limit is None:
            return False
        if now >= self._next_measurement:
            self._next_measurement = now + _MEASURE_SECONDS
            most = limit - _in_flight(limit)
            self._full = self._used() > most
            if self._full and now >= self._next_trim:
                self._next_trim = now + _TRIM_SECONDS
                self._give_back()
                self._full = self._used() > most
        return self._full


def _in_flight(limit: int) -> float:
    """Return the bytes reserved for data in flight, at most half of the limit beyond the bare process."""
    return max(_IN_FLIGHT * limit, min(_LEAST_IN_FLIGHT, (limit - PROCESS_BYTES) / 2))
