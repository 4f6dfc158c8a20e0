"""Run a source's interceptors, and drop the events for which one of them fails.

An interceptor may call a service that is down. Then it fails for every event, and the batch is retried. An event is to
blame only if the interceptor fails for it alone and passes another event after that: one of the same batch, or the
first that it ever passed. Such an event is dropped, counted and logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ...runtime.clock import Clock
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ...text.plural import counted
from ..config.options import words_of
from ..events.batch import EventBatch
from ..events.counters import Counters
from ..events.interfaces import Interceptor
from .isolation import is_of_event

_log = get_logger("loghub.agent.source")

Committed = Callable[[], None]


class Interception:
    """The interceptors of a source, in order; called by several threads at once.

    :param source: the source's name.
    """

    def __init__(self, source: str, interceptors: Sequence[Interceptor], counters: Counters, clock: Clock) -> None:
        self._source, self._counters = source, counters
        self._steps = [_Step(interceptor) for interceptor in interceptors]
        self._repeated = RateLimitedLog(clock)

    def __bool__(self) -> bool:
        return bool(self._steps)

    def run(self, batch: EventBatch) -> tuple[EventBatch, list[Committed]]:
        """Return the remaining batch, and callbacks for when all required channels have it.

        :raises Exception: if an interceptor fails for a temporary reason.
        """
        callbacks: list[Committed] = []
        for step in self._steps:
            batch = self._passed(step, batch)
            committed: Callable[[EventBatch], None] | None = getattr(step.interceptor, "committed", None)
            if committed is not None:
                callbacks.append(partial(committed, batch))
        return batch, callbacks

    def _passed(self, step: _Step, batch: EventBatch) -> EventBatch:
        try:
            return step.passed(batch)
        except Exception as error:
            if not is_of_event(error):
                raise
            passed, dropped = step.passed_apart(batch, error)
            if dropped:
                self._log_dropped(step, dropped, error)
            return passed

    def _log_dropped(self, step: _Step, dropped: int, error: Exception) -> None:
        self._counters.add(EventDroppedCount=dropped)
        more = self._repeated.due_error(error)
        if more is not None:
            _log.error(
                "source %s: %s dropped: %s fails for them and passes others: %s: %s%s",
                *(self._source, counted(dropped, "event"), type(step.interceptor).__name__),
                *(type(error).__name__, words_of(error), more),
            )


class _Step:
    """One interceptor.

    :ivar _known: an event that the interceptor has passed; None if it has passed none.
    """

    def __init__(self, interceptor: Interceptor) -> None:
        self.interceptor = interceptor
        self._known: EventBatch | None = None

    def passed(self, batch: EventBatch) -> EventBatch:
        after = self.interceptor.intercept(batch)
        if self._known is None and batch.count:
            self._known = batch.select([True] + [False] * (batch.count - 1))
        return after

    def passed_apart(self, batch: EventBatch, error: Exception) -> tuple[EventBatch, int]:
        """Return the batch without the events for which the interceptor fails, and the number of these.

        :param error: the interceptor's error for the whole batch.
        :raises Exception: ``error`` if it fails for all events; another one if the reason is temporary.
        """
        outcomes = list(self._in_parts(batch))
        parts = [after for after in outcomes if after is not None]
        if not parts:
            self._check(error)
        events = (event for part in parts for event in part.events())
        return EventBatch.of_events(events, batch.position), len(outcomes) - len(parts)

    def _in_parts(self, batch: EventBatch) -> Iterator[EventBatch | None]:
        """Yield the interceptor's result for parts of a batch; None for an event for which it fails."""
        parts = [batch]
        while parts:
            part = parts.pop()
            try:
                yield self.interceptor.intercept(part)
            except Exception as error:
                if not is_of_event(error):
                    raise
                if part.count < 2:
                    yield None
                else:
                    parts += reversed(part.halves())

    def _check(self, error: Exception) -> None:
        """Check that the interceptor still passes an event that it passed before.

        :raises Exception: ``error``, if it does not, or has passed none.
        """
        if self._known is None:
            raise error
        try:
            self.interceptor.intercept(self._known)
        except Exception:  # noqa: BLE001  # a plugin may raise anything; the first error is raised
            raise error from None
