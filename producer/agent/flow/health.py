"""Track whether a sink, a group or a source works, for operators."""

from __future__ import annotations

import math

from ...runtime.clock import Clock, SystemClock
from ..config.options import words_of
from ..events.counters import Counters
from .refused import Refused
from .taps import Tap

#: Seconds without a success after which a failing component is in trouble. A restart of its destination takes less.
FAILING = 10.0
#: Seconds after which a failed put no longer counts: its sender may never return.
FORGOTTEN = 60.0
#: Seconds of one delivery, after which it is in trouble. A large one over a slow line takes less.
HANGING = 60.0


class Health:
    """The health of one sink, group or source during the agent's life, and its samples; used by any thread.

    :param nothing: the description of a component that only fails.
    :param forgotten: seconds after which a failure no longer counts.
    :ivar counters: its counters, which get its last error.
    :ivar clock: the time.
    :ivar tap: shows its batches.
    :ivar refused: its refused events.
    """

    def __init__(
        self, clock: Clock | None = None, nothing: str = "has delivered nothing", forgotten: float = math.inf
    ) -> None:
        self.counters, self.clock = Counters(), clock or SystemClock()
        self._nothing, self._forgotten = nothing, forgotten
        self._failing_since: float | None = None
        self._failed_at = -math.inf
        self._begun: float | None = None
        self.tap, self.refused = Tap(), Refused()

    def begun(self) -> None:
        """Record the start of a delivery."""
        self._begun = self.clock.monotonic()

    def worked(self) -> None:
        """Record that events left the channel, or entered one."""
        self._begun = self._failing_since = None

    def failed(self, error: BaseException) -> None:
        """Record a failure after which everything is retried."""
        now, begun = self.clock.monotonic(), self._begun
        self._begun = None
        self.counters.last_error = f"{type(error).__name__}: {words_of(error)}"
        if self._failing_since is None or now - self._failed_at >= self._forgotten:
            self._failing_since = now if begun is None else begun
        self._failed_at = now

    def trouble(self) -> str | None:
        """Describe what has blocked the component for a while; None if nothing has."""
        now, failing, begun = self.clock.monotonic(), self._failing_since, self._begun
        if failing is not None and now - failing >= FAILING and now - self._failed_at < self._forgotten:
            return f"{self._nothing} for {now - failing:.0f} s: {self.counters.last_error}"
        if begun is not None and now - begun >= HANGING:
            return f"has been at one delivery for {now - begun:.0f} s"
        return None
