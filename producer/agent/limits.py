"""Limits of a whole agent: memory, which is checked before it starts, and a share of the processors, kept by pauses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..clock import Clock
from .options import option

#: Bytes that an agent needs without its components.
PROCESS_BYTES = 40 << 20
#: And that a component is taken to hold that does not say: a few blocks on their way.
COMPONENT_BYTES = 8 << 20
#: Seconds: what was not used of the share for so long may be used at once; and the longest pause.
_BURST, _LONGEST_PAUSE = 0.2, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Keys of ``[agent]``."""

    max_memory_bytes: int | None = option(
        None, least=1, unit="bytes", doc="bytes that the agent may need: more than what its components hold at most"
    )
    max_cpu: float | None = option(None, least=0.01, doc="processors that it may use, such as 0.5")


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
            self._debt = max(-_BURST * share, self._debt + used - before - share * (now - then))
            return min(_LONGEST_PAUSE, self._debt / share) if self._debt > 0 else 0.0
