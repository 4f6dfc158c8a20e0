"""Sink processors: which sink of a group delivers.

* ``default``: the only one.
* ``failover``: the live sink of the highest priority. One that fails is left alone for ``2 ** failures`` seconds, at
  most ``maxpenalty``, and is tried first when it has cooled down.
* ``load_balance``: one after the other, in turn or at random, until one succeeds; with ``backoff`` one that fails is
  left alone, for longer each time.

Sources: Flume's ``FailoverSinkProcessor``, ``LoadBalancingSinkProcessor`` and ``OrderSelector``.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..model.options import option
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

_MOST_DOUBLINGS = 16
#: Seconds after the end of a sink's backoff in which another failure counts as one more in a row.
_FORGET_AFTER = 3600.0


class DefaultProcessor:
    """One sink."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """None."""

    def __init__(self, options: Options, context: Context, sinks: Mapping[str, Sink]) -> None:
        self.check(options, f"groups.{context.name}", sinks)
        (self._sink,) = sinks.values()

    @staticmethod
    def check(options: Options, where: str, sinks: Collection[str]) -> None:
        """Whether the options fit the group's sinks, as for the other processors.

        :raises AgentConfigError: they do not.
        """
        if len(sinks) != 1:
            raise AgentConfigError([Problem(where, "sinks", f"default takes one sink, got {', '.join(sinks)}")])

    def write(self, batches: Sequence[EventBatch]) -> None:
        """See :class:`~.interfaces.SinkProcessor`."""
        self._sink.write(batches)

    def tick(self) -> None:
        """See :class:`~.interfaces.Sink`."""
        tick(self._sink)

    def give_up(self, deadline: Deadline) -> None:
        """See :class:`~.interfaces.Sink`."""
        give_up(self._sink, deadline)

    def close(self) -> None:
        """See :class:`~.interfaces.SinkProcessor`."""
        self._sink.close()


class _Group:
    """Sinks of which one delivers."""

    def __init__(self, context: Context, sinks: Mapping[str, Sink]) -> None:
        self._sinks, self._clock = dict(sinks), context.clock
        self._backoffs = {name: _Backoff(context.clock) for name in sinks}
        self._repeated = {name: RateLimitedLog(context.clock) for name in sinks}

    def tick(self) -> None:
        """See :class:`~.interfaces.Sink`."""
        for sink in self._sinks.values():
            tick(sink)

    def give_up(self, deadline: Deadline) -> None:
        """See :class:`~.interfaces.Sink`."""
        for sink in self._sinks.values():
            give_up(sink, deadline)

    def close(self) -> None:
        """See :class:`~.interfaces.SinkProcessor`."""
        for sink in self._sinks.values():
            sink.close()

    def _try_in_order(self, names: Sequence[str], batches: Sequence[EventBatch], longest: float) -> None:
        """Let the first that can deliver.

        :raises SinkError: none can.
        :raises Exception: none can, and one of them since it cannot write an event.
        """
        failures: dict[str, Exception] = {}
        for name in names:
            try:
                self._sinks[name].write(batches)
            except RefusedError as error:
                self._succeeded(name, failures)
                error.numbered = False  # the other sinks know other numbers
                raise
            except Exception as error:  # noqa: BLE001  # a sink of anybody's; it is told, and the next one tried
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
        told = "; ".join(f"{name}: {error}" for name, error in failures.items())
        raise SinkError(f"no sink of the group could deliver: {told}", batches)

    def _succeeded(self, name: str, failures: Mapping[str, Exception]) -> None:
        self._backoffs[name].succeed()
        self._tell(failures)
        if self._repeated[name].recovered():
            recoveries.info("sink %s works again", name)

    def _tell(self, failures: Mapping[str, Exception]) -> None:
        """Say who failed before another one did the work; if none does, whoever runs the group says so."""
        for name, error in failures.items():
            more = self._repeated[name].due_error(error)
            if more is not None:
                _log.warning("sink %s failed: %s%s", name, error, more)


class FailoverProcessor(_Group):
    """The live sink of the highest priority delivers; one that fails is left alone for 2, 4, 8 … seconds.

    :raises AgentConfigError: a priority of a sink that is not in the group; two sinks of one priority, as Flume would
        drop one of them.
    """

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's ``processor.*``."""

        priority: Mapping[str, int] = option({}, doc="of each sink; the highest first; without one, in their order")
        maxpenalty: float = option(30.0, scale=0.001, least=0, doc="seconds that a sink is left alone at most")

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
        """See :meth:`DefaultProcessor.check`."""
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
        """See :class:`~.interfaces.SinkProcessor`."""
        live = [name for name in self._names if self._backoffs[name].is_over()]
        self._try_in_order(live or self._names[:1], batches, self._longest)


class LoadBalancingProcessor(_Group):
    """The sinks deliver one after the other, in turn or at random: the next one where one fails."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's ``processor.*``."""

        selector: str = option("round_robin", doc="who is first", choices=("round_robin", "random"))
        backoff: bool = option(False, doc="whether one that failed is left alone")
        max_time_out: float = option(
            30.0, flume="selector.maxTimeOut", scale=0.001, least=0, doc="seconds that it is left alone at most"
        )

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """Flume's own names are in capitals."""
            return in_small_letters(texts, "selector")

    def __init__(self, options: Options, context: Context, sinks: Mapping[str, Sink]) -> None:
        super().__init__(context, sinks)
        self.check(options, f"groups.{context.name}", sinks)
        self._options = options
        self._next = -1

    @staticmethod
    def check(options: Options, where: str, sinks: Collection[str]) -> None:
        """See :meth:`DefaultProcessor.check`."""
        if len(sinks) < 2:
            raise AgentConfigError([Problem(where, "sinks", "load_balance takes two sinks at least")])

    def write(self, batches: Sequence[EventBatch]) -> None:
        """See :class:`~.interfaces.SinkProcessor`."""
        longest = self._options.max_time_out if self._options.backoff else 0.0
        self._try_in_order(self._in_order(), batches, longest)

    def _in_order(self) -> Sequence[str]:
        names = [name for name in self._sinks if self._backoffs[name].is_over()] or list(self._sinks)
        if self._options.selector == "random":
            return random.sample(names, len(names))  # no secret
        self._next = (self._next + 1) % len(names)
        return names[self._next :] + names[: self._next]


class _Backoff:
    """How long one sink is left alone: ``2 ** failures`` seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures, self._until = 0, clock.monotonic()

    def is_over(self) -> bool:
        """Whether it may be tried."""
        return self._clock.monotonic() >= self._until

    def fail(self, longest: float) -> None:
        """It failed."""
        now = self._clock.monotonic()
        forgotten = now > self._until + _FORGET_AFTER
        self._failures = 1 if forgotten else min(self._failures + 1, _MOST_DOUBLINGS)
        self._until = now + min(longest, float(2**self._failures))

    def succeed(self) -> None:
        """It delivered."""
        self._failures, self._until = 0, self._clock.monotonic()
