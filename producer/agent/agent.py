"""Agent: sources, channels and sinks of one configuration, at work.

They start in the order channels, sinks, sources, and end in the reverse one under one deadline: first no source reads
any more; then the sinks deliver what lies in channels that forget; then all is closed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from ..clock import Clock, Deadline, SystemClock, WaitingRoom
from .blueprint import Blueprint, SinkPart, SourcePart, draw
from .channel import BatchChannel
from .config.model import AgentConfig
from .counters import Counters
from .interfaces import Context, Stop
from .positions import DeliveredPositions
from .routing import SourceOutlet
from .sink_runner import SinkRunner
from .supervisor import State, Supervised

_log = logging.getLogger("producer.agent")


class Agent:
    """See the module.

    :param config: checked at once.
    :raises AgentConfigError: with all that is wrong with it.
    """

    def __init__(self, config: AgentConfig, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.blueprint: Blueprint = draw(config)
        self.counters: dict[str, Counters] = {}
        self.channels: dict[str, BatchChannel] = {}
        self.sources: dict[str, Supervised] = {}
        self.sinks: dict[str, Supervised] = {}
        self._changes = WaitingRoom(self._clock, look_again=1.0)

    @property
    def config(self) -> AgentConfig:
        """What it was made of."""
        return self.blueprint.config

    def start(self) -> None:
        """Open the channels, and begin.

        :raises ChannelError: a channel cannot be opened; nothing has begun.
        """
        with ExitStack() as undo:
            for name, part in self.blueprint.channels.items():
                self.channels[name] = part.make(self._context("channels", name)).open()
                undo.callback(self.channels[name].close)
            undo.pop_all()
        takers = [sink.channel for sink in self.blueprint.sinks.values()]
        for name, channel in self.channels.items():
            if takers.count(name) != 1:  # what is taken by several is not delivered in the order of its numbers
                channel.origin = None
        for name, sink in self.blueprint.sinks.items():
            self.sinks[name] = self._start_sink(sink)
        for name, source in self.blueprint.sources.items():
            self.sources[name] = self._start_source(source)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every source has nothing left to do; False if that is not so in time."""
        deadline = Deadline.after(self._clock, timeout)
        return self._changes.wait_until(
            lambda: all(source.state is State.FINISHED for source in self.sources.values()), deadline
        )

    def stop(self, timeout: float | None = None) -> bool:
        """End in order; False if something had not ended in time.

        :param timeout: seconds; None is the configuration's ``stop_timeout``.
        """
        deadline = Deadline.after(self._clock, self.config.stop_timeout if timeout is None else timeout)
        ended = self._stop_all(self.sources, deadline)
        for channel in self.channels.values():
            if isinstance(channel.positions, DeliveredPositions) and self._is_served(channel.name):
                channel.wait_until_empty(deadline)
        ended = self._stop_all(self.sinks, deadline) and ended
        for channel in self.channels.values():
            if isinstance(channel.positions, DeliveredPositions) and channel.held:
                _log.warning("channel %s: %d events were not delivered in time", channel.name, channel.held)
            channel.close()
        return ended

    def _stop_all(self, parts: Mapping[str, Supervised], deadline: Deadline) -> bool:
        for part in parts.values():
            part.stop()
        late = [part for part in parts.values() if not part.join(deadline)]
        for part in late:
            _log.error("%s %s has not ended in time", part.kind, part.name)
        return not late

    def _is_served(self, channel: str) -> bool:
        return any(sink.channel == channel for sink in self.blueprint.sinks.values())

    def _start_sink(self, part: SinkPart) -> Supervised:
        context = self._context("sinks", part.name)

        def run(stop: Stop) -> None:
            sinks = {each.name: each.make(self._context("sinks", each.name)) for each in part.sinks}
            processor = part.processor.make(context, sinks)
            try:
                SinkRunner(
                    part.name,
                    self.channels[part.channel],
                    processor,
                    context.counters,
                    dead_letters=None if part.dead_letters is None else self.channels[part.dead_letters],
                    most_events=min(sink.most_events for sink in sinks.values()),
                    most_bytes=min(sink.most_bytes for sink in sinks.values()),
                ).run(stop)
            finally:
                processor.close()

        return self._supervise("sink", part.name, run, context)

    def _start_source(self, part: SourcePart) -> Supervised:
        name = part.source.name
        context = self._context("sources", name)
        channels = {channel: self.channels[channel] for channel in part.channels}

        def run(stop: Stop) -> None:
            interceptors = [each.make(self._context(f"interceptors/{name}", each.name)) for each in part.interceptors]
            selector = part.selector.make(context, channels)
            outlet = SourceOutlet(name, interceptors, selector, channels, context.counters, self._clock)
            part.source.make(context).run(outlet, stop)

        return self._supervise("source", name, run, context)

    def _supervise(self, kind: str, name: str, run: object, context: Context) -> Supervised:
        supervised = Supervised(kind, name, run, context.counters, self._clock, self._changes.wake_all)  # type: ignore[arg-type]
        supervised.start()
        return supervised

    def _context(self, kind: str, name: str) -> Context:
        counters = self.counters.setdefault(f"{kind}.{name}", Counters())
        state = Path(self.config.state) / kind / name
        return Context(self.config.name, name, state, counters, self._clock)
