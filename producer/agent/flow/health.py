"""Health: whether a sink, a group, or a source does its work, as whoever runs it sees that."""

from __future__ import annotations

import math

from ...runtime.clock import Clock
from ..config.options import words_of
from ..events.counters import Counters

#: Seconds of failures alone, after which a sink is not well: a restart of its destination takes less.
FAILING = 10.0
#: Seconds after which the failure of a put says nothing any more: whoever had sent that may not come again.
FORGOTTEN = 60.0
#: Seconds of one delivery, after which it is not: a large one over a slow line takes less.
HANGING = 60.0


class Health:
    """Of one sink, group or source, for the agent's life; asked on any thread.

    :param counters: the component's; they are told what went wrong at last.
    :param nothing: what to say of one that only fails.
    :param forgotten: seconds after which a failure says nothing any more.
    :ivar clock: what time is told by.
    """

    def __init__(
        self, counters: Counters, clock: Clock, nothing: str = "has delivered nothing", forgotten: float = math.inf
    ) -> None:
        self._counters, self.clock = counters, clock
        self._nothing, self._forgotten = nothing, forgotten
        self._failing_since: float | None = None
        self._failed_at = -math.inf
        self._begun: float | None = None

    def begun(self) -> None:
        """A delivery has begun."""
        self._begun = self.clock.monotonic()

    def worked(self) -> None:
        """Some of it, at least, has left the channel, or come into one."""
        self._begun = self._failing_since = None

    def failed(self, error: BaseException) -> None:
        """Nothing was delivered, or put, and all is tried again."""
        now, begun = self.clock.monotonic(), self._begun
        self._begun = None
        self._counters.last_error = f"{type(error).__name__}: {words_of(error)}"
        if self._failing_since is None or now - self._failed_at >= self._forgotten:
            self._failing_since = now if begun is None else begun
        self._failed_at = now

    def trouble(self) -> str | None:
        """What keeps it from its work for a while; None if nothing does."""
        now, failing, begun = self.clock.monotonic(), self._failing_since, self._begun
        if failing is not None and now - failing >= FAILING and now - self._failed_at < self._forgotten:
            return f"{self._nothing} for {now - failing:.0f} s: {self._counters.last_error}"
        if begun is not None and now - begun >= HANGING:
            return f"has been at one delivery for {now - begun:.0f} s"
        return None
