"""Sink processors choose the sink of a group that delivers.

* ``default``: the only sink.
* ``failover``: the live sink of the highest priority. A failed sink backs off for ``2 ** failures`` seconds, at most
  ``maxpenalty``, and is tried first after that.
* ``load_balance``: the sinks in turn or at random, until one succeeds. With ``backoff`` a failed sink backs off, longer
  each time.

Adapted from Flume's ``FailoverSinkProcessor``, ``LoadBalancingSinkProcessor`` and ``OrderSelector``.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..model.options import option
from ..runtime.backoff import pause_after
from ..runtime.clock import Clock, Deadline
from ..runtime.loggers import get_logger
from ..runtime.rate_limited_log import RateLimitedLog
from .config.flume_keys import in_small_letters
from .config.options import AgentConfigError, Problem, nearest
from .events.batch import EventBatch
from .events.interfaces import Context, RefusedError, Sink, SinkError, give_up, tick
from .flow.isolation import is_of_event
from .recoveries import recoveries

_log = get_logger("loghub.agent.sink")

#: Seconds of a sink's first backoff.
_FIRST_BACKOFF = 2.0
#: Seconds after a sink's backoff in which another failure still counts as one in a row.
_FORGET_AFTER = 3600.0


class _Group:
    """A group of sinks, one of which delivers at a time."""

    def __init__(self, context: Context, sinks: Mapping[str, Sink]) -> None:
        self._sinks, self._clock = dict(sinks), context.clock
        self._backoffs = {name: _Backoff(context.clock) for name in sinks}
        self._repeated = {name: RateLimitedLog(context.clock) for name in sinks}

    def tick(self) -> None:
        for sink in self._sinks.values():
            tick(sink)

    def give_up(self, deadline: Deadline) -> None:
        for sink in self._sinks.values():
            give_up(sink, deadline)

    def close(self) -> None:
        for sink in self._sinks.values():
            sink.close()

    def _try_in_order(self, names: Sequence[str], batches: Sequence[EventBatch], longest: float) -> None:
        """Deliver with the first sink that can.

        :raises SinkError: if no sink can.
        :raises Exception: if no sink can, and one failed because of an event.
        """
        failures: dict[str, Exception] = {}
        for name in names:
            try:
                self._sinks[name].write(batches)
            except RefusedError as error:
                self._succeeded(name, failures)
                error.numbered = False  # the other sinks have their own numbers
                raise
            except Exception as error:  # noqa: BLE001  # a plugin's sink may raise anything; logged, and the next sink tried
                self._backoffs[name].fail(longest)
                if isinstance(error, SinkError) and error.later is not None:
                    batches = error.later
                failures[name] = error
            else:
                self._succeeded(name, failures)
                return
        odd = next((error for error in failures.values() if is_of_event(error)), None)
        if odd is not None:
            raise odd
        reasons = "; ".join(f"{name}: {error}" for name, error in failures.items())
        raise SinkError(f"no sink of the group could deliver: {reasons}", batches)

    def _succeeded(self, name: str, failures: Mapping[str, Exception]) -> None:
        self._backoffs[name].succeed()
        self._log_failures(failures)
        if self._repeated[name].recovered():
            recoveries.info("sink %s works again", name)

    def _log_failures(self, failures: Mapping[str, Exception]) -> None:
        """Log the sinks that failed before another one delivered. If all fail, the sink runner logs it."""
        for name, error in failures.items():
            more = self._repeated[name].due_error(error)
            if more is not None:
                _log.warning("sink %s failed: %s%s", name, error, more)


class DefaultProcessor(_Group):
    """Delivers with the group's only sink."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """No options."""

    def __init__(self, options: Options, context: Context, sinks: Mapping[str, Sink]) -> None:
        super().__init__(context, sinks)
        self.check(options, f"groups.{context.name}", sinks)
        (self._sink,) = sinks.values()

    @staticmethod
    def check(options: Options, where: str, sinks: Collection[str]) -> None:
        """Check the options against the group's sinks, as the other processors do.

        :raises AgentConfigError: if they do not fit.
        """
        if len(sinks) != 1:
            raise AgentConfigError([Problem(where, "sinks", f"default takes one sink, got {', '.join(sinks)}")])

    def write(self, batches: Sequence[EventBatch]) -> None:
        self._sink.write(batches)


class FailoverProcessor(_Group):
    """Delivers with the live sink of the highest priority. A failed sink backs off for 2, 4, 8 … seconds.

    :raises AgentConfigError: if a priority names a sink outside the group, or two sinks share a priority. Flume would
        drop one of the two.
    """

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's ``processor.*``."""

        priority: Mapping[str, int] = option(
            {}, doc="the priority of each sink, the highest first; sinks without one follow, in order"
        )
        maxpenalty: float = option(30.0, scale=0.001, least=0, doc="the longest backoff of a failed sink, seconds")

    def __init__(self, options: Options, context: Context, sinks: Mapping[str, Sink]) -> None:
        super().__init__(context, sinks)
        self._longest = options.maxpenalty
        self.check(options, f"groups.{context.name}", sinks)
        given = list(options.priority.values())
        lowest = min(given, default=0)
        ranks = {name: options.priority.get(name, lowest - 1 - place) for place, name in enumerate(sinks)}
        self._names = sorted(sinks, key=lambda name: -ranks[name])

    @staticmethod
    def check(options: Options, where: str, sinks: Collection[str]) -> None:
        problems = [
            Problem(where, f"priority.{name}", f"the group has no such sink{nearest(name, sinks)}")
            for name in options.priority
            if name not in sinks
        ]
        given = list(options.priority.values())
        problems += [
            Problem(where, f"priority.{name}", f"{priority} is another sink's priority too")
            for name, priority in options.priority.items()
            if given.count(priority) > 1
        ]
        if problems:
            raise AgentConfigError(problems)

    def write(self, batches: Sequence[EventBatch]) -> None:
        live = [name for name in self._names if self._backoffs[name].is_over()]
        self._try_in_order(live or self._names[:1], batches, self._longest)


class LoadBalancingProcessor(_Group):
    """Delivers with the sinks in turn or at random, and with the next one if a sink fails."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's ``processor.*``."""

        selector: str = option(
            "round_robin", doc="the order in which sinks are tried", choices=("round_robin", "random")
        )
        backoff: bool = option(False, doc="True to have a failed sink back off")
        max_time_out: float = option(
            30.0, flume="selector.maxTimeOut", scale=0.001, least=0, doc="the longest backoff, seconds"
        )

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            return in_small_letters(texts, "selector")

    def __init__(self, options: Options, context: Context, sinks: Mapping[str, Sink]) -> None:
        super().__init__(context, sinks)
        self.check(options, f"groups.{context.name}", sinks)
        self._options = options
        self._next = -1

    @staticmethod
    def check(options: Options, where: str, sinks: Collection[str]) -> None:
        if len(sinks) < 2:
            raise AgentConfigError(
                [Problem(where, "sinks", f"load_balance takes at least two sinks, got {len(sinks)}")]
            )

    def write(self, batches: Sequence[EventBatch]) -> None:
        longest = self._options.max_time_out if self._options.backoff else 0.0
        self._try_in_order(self._in_order(), batches, longest)

    def _in_order(self) -> Sequence[str]:
        names = [name for name in self._sinks if self._backoffs[name].is_over()] or list(self._sinks)
        if self._options.selector == "random":
            return random.sample(names, len(names))  # not security-relevant
        self._next = (self._next + 1) % len(names)
        return names[self._next :] + names[: self._next]


class _Backoff:
    """The backoff of one sink: ``2 ** failures`` seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures, self._until = 0, clock.monotonic()

    def is_over(self) -> bool:
        return self._clock.monotonic() >= self._until

    def fail(self, longest: float) -> None:
        now = self._clock.monotonic()
        forgotten = now > self._until + _FORGET_AFTER
        self._failures = 1 if forgotten else self._failures + 1
        self._until = now + pause_after(self._failures, _FIRST_BACKOFF, longest)

    def succeed(self) -> None:
        self._failures, self._until = 0, self._clock.monotonic()
