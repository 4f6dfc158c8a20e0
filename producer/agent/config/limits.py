"""Limits of a whole agent: memory and a share of the processors.

That components may hold no more than the memory is checked before anything starts. What they need is more than the
bytes of their events: objects, what a delivery is made of, what Python keeps for later. So while the agent runs, its
process is looked at, and nothing is let into the channels while it has too much. The processors are kept by pauses.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...model.options import option
from ...runtime.clock import Clock

#: Bytes that an agent needs without its components.
PROCESS_BYTES = 40 << 20
#: And that a component is taken to hold that does not say: a few blocks on their way.
COMPONENT_BYTES = 8 << 20
#: Seconds: what was not used of the share for so long may be used at once; and the longest pause.
_BURST, _LONGEST_PAUSE = 0.2, 1.0
#: Seconds that what was used too much is waited for at most: where others of the process use all of the share, it must
#: go on all the same, and one batch a minute is let through.
_MOST_DEBT = 60.0
#: Of the bound so much is for what is on its way, and so many bytes at least: sources wait before. A delivery of short
#: lines is made of objects that need many times their bytes.
_ON_ITS_WAY, _LEAST_ON_ITS_WAY = 0.1, 16 << 20
#: Seconds between two times that the C library is told to give back what it keeps, which takes some milliseconds.
_GIVING = 1.0
#: Seconds between two looks at the process.
_LOOK = 0.02
_STATM = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The keys of ``[agent]`` that limit the process."""

    max_memory_bytes: int | None = option(
        None, least=1, unit="bytes", doc="bytes of the process; at least what its components may hold"
    )
    max_cpu: float | None = option(None, least=0.01, doc="processors that it may use, such as 0.5")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions(Limits):
    """All keys of ``[agent]``."""

    name: str = option("agent", doc="the agent's name")
    state: Path = option(Path("loghub-agent"), doc="the directory for what components keep")
    monitoring: str | int = option("", least=1, most=65_535, doc="where to serve metrics: host:port, or a port")
    stop_timeout: float = option(
        30.0, least=0.001, most=31_536_000, unit="seconds", doc="how long an orderly end may take"
    )


class Pace:
    """Has sources and sinks pause, so that the process stays within a share of the processors.

    What the process has used counts, whoever of it used that; so nobody has to be asked how much he does.

    :param share: processors; None for no limit.
    :param used: seconds of CPU that the process has used.
    """

    def __init__(self, share: float | None, clock: Clock, used: Callable[[], float] = time.process_time) -> None:
        self.share = share
        self._clock, self._used = clock, used
        self._lock = threading.Lock()  # guards what follows
        self._debt = 0.0
        self._last = clock.monotonic(), used()

    def pause(self) -> float:
        """Seconds to wait before more is done; 0 if nobody need to."""
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
        """Wait until the process is within its share: one batch may have used far more than a pause makes up for.

        :param wait: sleeps for so many seconds; what is true ends the rest.
        :param most: seconds, about.
        """
        end = self._clock.monotonic() + most
        while (pause := self.pause()) > 0 and self._clock.monotonic() < end:
            if wait(pause):
                return


def resident() -> int:
    """Bytes of memory that the process has now; 0 where the system does not say."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def give_back() -> None:
    """Let the system have what the C library keeps of memory that was freed, where that can be told to."""
    import ctypes  # few need it

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Memory:
    """Has sources wait while the process has nearly as much memory as it may.

    :param limit: bytes; None for no limit.
    :param used: bytes that the process has.
    :param give_back: makes them less, if anything of them is not in use.
    """

    def __init__(
        self,
        limit: int | None,
        clock: Clock,
        used: Callable[[], int] = resident,
        give_back: Callable[[], object] = give_back,
    ) -> None:
        self.limit = limit
        self._clock, self._used, self._give_back = clock, used, give_back
        self._next_look, self._full = clock.monotonic(), False
        self._next_giving = clock.monotonic()

    def is_full(self) -> bool:
        """Whether nothing more is to be let in."""
        limit, now = self.limit, self._clock.monotonic()
        if limit is None:
            return False
        if now >= self._next_look:
            self._next_look = now + _LOOK
            most = limit - _on_its_way(limit)
            self._full = self._used() > most
            if self._full and now >= self._next_giving:
                self._next_giving = now + _GIVING
                self._give_back()
                self._full = self._used() > most
        return self._full


def _on_its_way(limit: int) -> float:
    """Bytes of a bound that nothing waits in; where it is small, half of what it has beside the process alone."""
    return max(_ON_ITS_WAY * limit, min(_LEAST_ON_ITS_WAY, (limit - PROCESS_BYTES) / 2))
