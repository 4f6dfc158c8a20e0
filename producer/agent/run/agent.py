"""Run the sources, channels and sinks of one configuration.

They start in the order channels, sinks, sources, and end in the reverse order under one deadline: sources stop reading,
sinks deliver the events of channels that do not keep them, and everything is closed.

A reload ends and starts only the components that differ, in the same orders. The others continue. An unchanged channel
keeps its events. A channel that does not keep its events is closed only after its sinks have delivered them. If they
cannot, nothing is changed. If anything fails before the new components start, the former ones are started again.

The file is long because start, reload and stop share these orders.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...model.errors import ChannelClosedError, ChannelError, ProducerError
from ...runtime.clock import Clock, Deadline, Stop, SystemClock, WaitingRoom
from ...runtime.forks import Stage, watch_fork
from ...runtime.loggers import get_logger
from ...text.plural import counted
from ..config.limits import Memory, Pace
from ..config.model import AgentConfig
from ..config.options import Problem
from ..events.interfaces import Context, Lag, Patience, Sink, SinkProcessor, Source, give_up
from ..flow.channel import BatchChannel
from ..flow.counted_sink import CountedSink
from ..flow.health import FORGOTTEN, Health
from ..flow.outlet import SourceOutlet
from ..flow.sink_runner import SinkRunner
from ..ledger.former_state import read_former
from ..ledger.lanes import Lane
from ..ledger.ledgers import Ledgers
from .blueprint import Blueprint, Part, SinkPart, SourcePart, draw, places_of
from .changes import Changes, compare
from .former_channels import Beginning, undelivered, waiting_text
from .reload_status import Reloads
from .secret_texts import secret_texts
from .supervisor import State, Supervised

_log = get_logger("loghub.agent")
_T = TypeVar("_T")
#: Share of the stop timeout in which sinks deliver; the rest is for them to end.
_SHARE = 0.9
#: Share of that rest, and seconds at most, for deliveries in flight.
_LAST_SHARE, _LAST_SECONDS = 0.8, 10.0
#: Seconds that sinks always get to end.
_GRACE = 0.5


class ChannelStartError(ProducerError):
    """Raised when a channel cannot be opened."""


class ReloadError(ProducerError):
    """Raised when a configuration cannot take effect while the agent runs; nothing was changed."""


class UndeliveredError(ReloadError):
    """Raised when a reload would lose events that the sinks have not delivered.

    :ivar is_over: returns True once they are delivered, so that another attempt makes sense.
    """

    def __init__(self, message: str, is_over: Callable[[], bool]) -> None:
        super().__init__(message)
        self.is_over = is_over


class Agent:
    """An agent with the components of one configuration.

    :param config: the configuration, checked at once.
    :param changed: called after each change of a component's state, on any thread.
    :ivar clock: the clock.
    :ivar remaining: after :meth:`stop`, the number of events in each channel that keeps them.
    :ivar undelivered: descriptions of the events in directories that no channel uses, by directory.
    :ivar health: the health of each component, by kind and name.
    :ivar hidden: texts that the monitoring must not show, of the present and the former configuration, each with the
        text to show.
    :ivar reloads: the state of reloads, updated by the thread that watches the file.
    :raises AgentConfigError: if the configuration is invalid, with all problems.
    """

    def __init__(
        self, config: AgentConfig, clock: Clock | None = None, changed: Callable[[], None] = lambda: None
    ) -> None:
        self.clock = clock or SystemClock()
        self.blueprint: Blueprint = draw(config)
        self._pace = Pace(config.limits.max_cpu, self.clock)
        self._memory = Memory(config.limits.max_memory_bytes, self.clock)
        self.health: dict[str, Health] = {}
        self.hidden: dict[str, str] = secret_texts(self.blueprint)
        self._ledgers = Ledgers(Path(config.state) / "sources", self.clock)
        self.channels: dict[str, BatchChannel] = {}
        self.sources: dict[str, Supervised] = {}
        self.sinks: dict[str, Supervised] = {}
        self._reading: dict[str, Source] = {}
        self._delivering: dict[str, SinkProcessor] = {}
        self.remaining: dict[str, int] = {}
        self.undelivered: dict[str, str] = {}
        self.reloads = Reloads()
        self._changes = WaitingRoom(self.clock, look_again=1.0)
        self._changed = changed
        watch_fork(self, Stage.PRODUCERS)

    def _renew_in_child(self) -> None:
        """Forget all components, which are the parent's: nothing is left to stop."""
        self.channels, self.sources, self.sinks, self._reading, self._delivering = {}, {}, {}, {}, {}
        self._ledgers = Ledgers(Path(self.config.state) / "sources", self.clock)

    @property
    def config(self) -> AgentConfig:
        """The present configuration."""
        return self.blueprint.config

    def start(self) -> None:
        """Open the channels, and start the components.

        :raises ChannelStartError: if a channel cannot be opened; nothing was started.
        """
        blueprint = self.blueprint
        with ExitStack() as undo:
            undo.callback(self._ledgers.close)
            self._open_ledgers(blueprint.sources)
            self.channels = self._open(blueprint.channels)
            for channel in self.channels.values():
                undo.callback(_close, channel)
            former = self._begin_ledgers(blueprint, blueprint.sources)
            undo.pop_all()
        self._begin(blueprint, blueprint.sinks, blueprint.sources)
        self.undelivered = undelivered(blueprint, former)
        for directory, waits in self.undelivered.items():
            _log.warning("agent %s: %s", self.config.name, waiting_text(directory, waits))

    def reload(self, config: AgentConfig) -> Changes:
        """Apply another configuration: end and start the components that differ.

        If it raises, nothing was changed.

        :returns: the changes.
        :raises AgentConfigError: if the configuration is invalid.
        :raises ChannelStartError: if a channel cannot be opened.
        :raises ReloadError: if it cannot be applied while the agent runs.
        """
        new = draw(config)
        self._check_the_agent_stays(config)
        changes = compare(self.blueprint, new)
        self.hidden = secret_texts(self.blueprint) | secret_texts(new)
        self._open_ledgers(new.sources)
        early = changes.channels_begun - changes.channels_ended
        opened = self._open({name: new.channels[name] for name in early})
        with ExitStack() as undo:
            for channel in opened.values():
                undo.callback(channel.close)
            undo.callback(self._resume)
            opened |= self._replace(new, changes, undo)
            undo.pop_all()
        kept = {name: channel for name, channel in self.channels.items() if name not in changes.channels_ended}
        self.channels = kept | opened
        self._forget(changes)
        self.blueprint = new
        self._pace.share = config.limits.max_cpu
        self._memory.limit = config.limits.max_memory_bytes
        self._begin_ledgers(new, changes.sources_begun)
        self._begin(new, changes.sinks_begun, changes.sources_begun)
        return changes

    def listens(self) -> bool:
        """Return True once all listening sources listen. A failed one is not waited for."""
        return all(self._is_listening(name, source) for name, source in list(self.sources.items()))

    def _is_listening(self, name: str, source: Supervised) -> bool:
        if source.state not in (State.NEW, State.RUNNING):
            return True
        reading = self._reading.get(name)
        listening: threading.Event | None = getattr(reading, "listening", None)
        return reading is not None and (listening is None or listening.is_set())

    def finished(self) -> bool:
        """Return True if no source has anything left to read."""
        return all(source.state is State.FINISHED for source in self.sources.values())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no source has anything left to read. Return False on a timeout."""
        return self._changes.wait_until(self.finished, Deadline.after(self.clock, timeout))

    def delivered(self) -> bool:
        """Return True if no event waits for a sink."""
        return not any(channel.held for name, channel in self.channels.items() if self._is_served(name))

    def lag(self, source: str) -> Lag | None:
        """Return the lag of a source; None if it does not run, or cannot tell."""
        tell: Callable[[], Lag] | None = getattr(self._reading.get(source), "lag", None)
        return None if tell is None else tell()

    def health_of(self, component: str) -> Health:
        """Return the health of a component.

        :param component: its kind and name, such as ``sinks.k1``.
        """
        if component not in self.health:
            words = ("has put nothing into its channels", FORGOTTEN) if component.startswith("sources.") else ()
            self.health.setdefault(component, Health(self.clock, *words))
        return self.health[component]

    def stop(self, timeout: float | None = None) -> bool:
        """Stop in order. Return False if a component did not end in time, or events were lost.

        :param timeout: seconds for everything; None for the configuration's ``stop_timeout``.
        """
        timeout = self.config.stop_timeout if timeout is None else timeout
        deadline, delivered = (Deadline.after(self.clock, each) for each in (timeout, _SHARE * timeout))
        late, forgetting = _end(self.sources, deadline), _forgetting(self.channels)
        served = [channel for channel in forgetting if self._is_served(channel.name)]
        names = {channel.name for channel in served}
        self._ask_sinks_to_end(
            [part.name for part in self.blueprint.sinks.values() if part.channel not in names], deadline
        )
        _wait_until_empty(served, delivered)
        late += self._end_sinks(self.sinks, deadline)
        lost = [channel.name for channel in forgetting if channel.held and not _discard_undelivered(channel)]
        kept = (channel for channel in self.channels.values() if channel not in forgetting or channel.spills)
        self.remaining = {channel.name: channel.held for channel in kept if channel.held}
        for channel in self.channels.values():
            _close(channel)
        _close(self._ledgers)
        return not (late or lost)

    def _ask_sinks_to_end(self, names: Collection[str], deadline: Deadline) -> None:
        """Ask sinks to end. Deliveries in flight are completed, or abandoned in time."""
        left = _LAST_SHARE * (deadline.remaining(self.clock) or 0.0)
        for sink in _chosen(self.sinks, names).values():
            sink.stop()
        for processor in _chosen(self._delivering, names).values():
            give_up(processor, Deadline.after(self.clock, min(left, _LAST_SECONDS)))

    def _end_sinks(self, names: Collection[str], deadline: Deadline) -> list[str]:
        """Stop sinks, and return the names of those that have not ended in time."""
        self._ask_sinks_to_end(names, deadline)
        soonest = self.clock.monotonic() + _GRACE
        latest = deadline.at if deadline.at is None else max(deadline.at, soonest)
        return _end(_chosen(self.sinks, names), Deadline(latest))

    # -- steps of a reload

    def _replace(self, new: Blueprint, changes: Changes, undo: ExitStack) -> dict[str, BatchChannel]:
        """End components, and open channels that were closed for a change.

        :param undo: receives the steps that restore the former state.
        """
        deadline = Deadline.after(self.clock, self.config.stop_timeout)
        _end(_chosen(self.sources, changes.sources_ended), deadline)
        self._empty(changes.channels_ended, deadline)
        # First the sinks whose dead letters go to these channels: the letters are to be delivered as well.
        parts = self.blueprint.sinks
        letter_sinks = {name for name in changes.sinks_ended if parts[name].dead_letters in changes.channels_ended}
        late_ones = self._end_sinks(letter_sinks, deadline)
        if letter_sinks:
            self._empty(changes.channels_ended, deadline)
        for sink in late_ones + self._end_sinks(changes.sinks_ended - letter_sinks, deadline):
            # A changed sink still has events. It returns or delivers them, out of order, when it ends.
            self.channels[parts[sink].channel].origins = None
        state, used = self.config.state, [place[0] for place in places_of(new.channels, self.config.state).values()]
        former = places_of(self.blueprint.channels, state)
        former = {name: place for name, place in former.items() if place[0] not in used}
        self.undelivered = {place: waits for place, waits in self.undelivered.items() if place not in used}
        for name in changes.channels_ended:
            channel = self.channels[name]
            left = former.get(name)
            if left is not None and channel.held:
                self.undelivered[left[0]] = counted(channel.held, "event")
                _log.warning("agent %s: %s", self.config.name, waiting_text(left[0], self.undelivered[left[0]]))
            _close(channel)
        undo.callback(self._reopen, changes.channels_ended)
        late = changes.channels_begun & changes.channels_ended
        return self._open({name: new.channels[name] for name in late})

    def _empty(self, names: Collection[str], deadline: Deadline) -> None:
        """Have the sinks deliver the events that closing the channels would lose.

        :raises ReloadError: if they are not delivered in time, or no sink takes them.
        """
        forgetting = _forgetting(_chosen(self.channels, names))
        _wait_until_empty([channel for channel in forgetting if self._is_served(channel.name)], deadline)
        for channel in forgetting:
            served = self._is_served(channel.name)
            if held := channel.held:
                what = f"channel {channel.name} holds {counted(held, 'event')} that would be lost"
                if not served:
                    raise ReloadError(f"{what}: no sink takes from it; add one, or leave the channel unchanged")
                text = f"{what}: its sinks did not deliver them in {self.config.stop_timeout:g} s"
                raise UndeliveredError(f"{text}; the reload is retried once they have", _delivers(channel, held))

    def _reopen(self, names: Collection[str]) -> None:
        self.channels = self.channels | self._open(_chosen(self.blueprint.channels, names))

    def _resume(self) -> None:
        """Start the components again that were asked to end."""
        sinks, sources = (
            [name for name, part in parts.items() if part.stopping and part.state is not State.FINISHED]
            for parts in (self.sinks, self.sources)
        )
        self._begin_ledgers(self.blueprint, sources)
        self._begin(self.blueprint, sinks, sources)

    def _forget(self, changes: Changes) -> None:
        for running, ended in ((self.sources, changes.sources_ended), (self.sinks, changes.sinks_ended)):
            for name in ended:
                running.pop(name, None)
        for name in changes.sources_ended:
            self._reading.pop(name, None)
        removed = {f"sources.{name}" for name in changes.sources_ended - changes.sources_begun}
        removed |= {f"sinks.{name}" for name in changes.sinks_ended - changes.sinks_begun}
        removed |= {f"channels.{name}" for name in changes.channels_ended - changes.channels_begun}
        for name in removed:
            self.health.pop(name, None)
        for name in changes.sinks_ended & changes.sinks_begun:
            self.health_of(f"sinks.{name}").worked()

    def _check_the_agent_stays(self, config: AgentConfig) -> None:
        for key in ("name", "state"):
            old, new = getattr(self.config, key), getattr(config, key)
            if old != new:
                message = f"cannot change from {str(old)!r} to {str(new)!r} while the agent runs: restart it"
                raise ReloadError(str(Problem("agent", key, message, config.lines.get(key))))

    # -- components

    def _open_ledgers(self, sources: Iterable[str]) -> None:
        """Open the ledgers of sources.

        :raises ChannelStartError: if one cannot be read.
        """
        for name in sources:
            try:
                self._ledgers.of(name)
            except ChannelError as error:
                raise ChannelStartError(f"source {name} cannot read its ledger: {error}") from error

    def _open(self, parts: Mapping[str, Part]) -> dict[str, BatchChannel]:
        """Open all channels, or none.

        :raises ChannelStartError: if one cannot be opened.
        """
        opened: dict[str, BatchChannel] = {}
        with ExitStack() as undo:
            for name, part in parts.items():
                try:
                    opened[name] = part.make(self._context("channels", name)).open()
                except (ProducerError, OSError) as error:
                    raise ChannelStartError(f"channel {name} cannot be opened: {error}") from error
                undo.callback(opened[name].close)
            undo.pop_all()
        return opened

    def _begin(self, blueprint: Blueprint, sinks: Collection[str], sources: Collection[str]) -> None:
        takers = [sink.channel for sink in blueprint.sinks.values()]
        for name, channel in self.channels.items():
            if takers.count(name) != 1:  # several takers deliver out of order
                channel.origins = None
            channel.losses.begin(self._ledgers, self._read_again)
        # Registered before they run: a restart finds them by name.
        begun = {name: self._sink(part) for name, part in blueprint.sinks.items() if name in sinks}
        self.sinks = self.sinks | begun
        _start(begun)
        begun = {name: self._source(part) for name, part in blueprint.sources.items() if name in sources}
        self.sources = self.sources | begun
        _start(begun)

    def _begin_ledgers(self, blueprint: Blueprint, sources: Collection[str]) -> list[str]:
        """Tell the ledgers what their channels hold, and the configuration of sources about to start.

        :returns: directories of former channels that no channel uses.
        :raises ChannelIOError: if earlier notes cannot be read.
        """
        beginning = Beginning(self._ledgers, blueprint, sources)
        for channel in self.channels.values():
            channel.attach(self._ledgers)
        beginning.begin(self._former_state)
        for line in beginning.warnings:
            _log.warning("agent %s: %s", self.config.name, line)
        return beginning.former

    def _former_state(self, part: SourcePart, selection: str) -> tuple[bytes, dict[str, Lane]] | None:
        name, state, channels = (
            part.source.name,
            Path(self.config.state),
            [self.channels[each] for each in part.channels],
        )
        notes = {each.name: getattr(each.channel, "notes", None) if each.keeps else None for each in channels}
        places = state / "sources" / name, state / "channels"
        return read_former(*places, notes, selection, exclusive=part.selector.kind.exclusive)

    def _read_again(self, names: Iterable[str]) -> None:
        """Restart the sources of these names, since a channel has lost their events."""
        for source in _chosen(self.sources, {name.partition("/")[0] for name in names}).values():
            source.again()

    def _is_served(self, channel: str) -> bool:
        return any(sink.channel == channel for sink in self.blueprint.sinks.values())

    def _sink(self, part: SinkPart) -> Supervised:
        context = self._context("sinks", part.name)
        channel = self.channels[part.channel]
        letters = None if part.dead_letters is None else self.channels[part.dead_letters]

        def run(stop: Stop) -> None:
            sinks = self._make_sinks(part)
            processor: SinkProcessor = part.processor.make(context, sinks)
            self._delivering[part.name] = processor
            try:
                SinkRunner(
                    part.name,
                    channel,
                    processor,
                    self.health_of(f"sinks.{part.name}"),
                    dead_letters=letters,
                    most_events=min(sink.most_events for sink in sinks.values()),
                    most_bytes=min(sink.most_bytes for sink in sinks.values()),
                    patience=_patience(sinks.values()),
                    hurried=lambda: bool(self.sources) and self.finished(),
                    pace=self._pace,
                ).run(stop)
            finally:
                processor.close()

        return self._supervise("sink", part.name, run, context)

    def _make_sinks(self, part: SinkPart) -> dict[str, Sink]:
        """Build the sinks of a part. In a group, sinks that cannot be built now are included.

        :raises Exception: if none can be built.
        """
        contexts = {each.name: self._context("sinks", each.name) for each in part.sinks}
        if part.name in contexts:
            return {each.name: each.make(contexts[each.name]) for each in part.sinks}
        sinks = {
            each.name: CountedSink(
                partial(each.make, contexts[each.name]),
                self.health_of(f"sinks.{each.name}"),
                self.sinks[part.name].again,
            )
            for each in part.sinks
        }
        failures = [sink.failure for sink in sinks.values() if sink.failure is not None]
        if len(failures) == len(sinks):
            raise failures[0]
        return dict(sinks)

    def _source(self, part: SourcePart) -> Supervised:
        name = part.source.name
        context = self._context("sources", name)
        channels = {channel: self.channels[channel] for channel in part.channels}

        def run(stop: Stop) -> None:
            with ExitStack() as closing:
                interceptors = []
                for each in part.interceptors:
                    interceptors.append(each.make(self._within(context, each.name)))
                    closing.callback(getattr(interceptors[-1], "close", bool))
                selector = part.selector.make(context, channels)
                shared = self._ledgers.of(name), self.health_of(f"sources.{name}"), self._pace
                outlet = SourceOutlet(name, interceptors, selector, channels, *shared, memory=self._memory)
                source: Source = part.source.make(context)
                self._reading[name] = source
                source.run(outlet, stop)

        return self._supervise("source", name, run, context)

    def _supervise(self, kind: str, name: str, run: Callable[[Stop], None], context: Context) -> Supervised:
        return Supervised(kind, name, run, context.counters, self.clock, self._notify)

    def _notify(self) -> None:
        self._changes.wake_all()
        self._changed()

    def _context(self, kind: str, name: str) -> Context:
        state, counters = Path(self.config.state) / kind / name, self.health_of(f"{kind}.{name}").counters
        return Context(self.config.name, name, state, counters, self.clock)

    def _within(self, source: Context, interceptor: str) -> Context:
        """Return the context of an interceptor, which shares its source's counters for the monitoring."""
        state = Path(self.config.state) / "interceptors" / source.name / interceptor
        return replace(source, name=interceptor, state=state)


def _forgetting(channels: Mapping[str, BatchChannel]) -> list[BatchChannel]:
    return [channel for channel in channels.values() if not channel.keeps]


def _start(parts: Mapping[str, Supervised]) -> None:
    for part in parts.values():
        part.start()


def _end(parts: Mapping[str, Supervised], deadline: Deadline) -> list[str]:
    """Stop components, and return the names of those that have not ended in time."""
    for part in parts.values():
        part.stop()
    late = [part for part in parts.values() if not part.join(deadline)]
    for part in late:
        _log.error("%s %s has not ended in time", part.kind, part.name)
    return [part.name for part in late]


def _wait_until_empty(channels: Sequence[BatchChannel], deadline: Deadline) -> None:
    """Wait for all channels together: a sink may put dead letters into a channel that was empty before."""
    while any(channel.held for channel in channels):
        if not all(channel.wait_until_empty(deadline) for channel in channels):
            return


def _patience(sinks: Iterable[Sink]) -> Patience | None:
    """Return the shortest patience of the sinks; None if one of them has none."""
    found: list[Patience | None] = [getattr(sink, "patience", None) for sink in sinks]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    return Patience(min(each.seconds for each in known), min(each.idle for each in known))


def _discard_undelivered(channel: BatchChannel) -> bool:
    """Drop and report the undelivered events of a channel that does not keep them.

    Return True if their sources read all of them again.
    """
    count = channel.held
    try:
        lost = channel.discard()
    except ChannelClosedError:  # by an earlier stop, which a component outlived; its sources may not read them again
        return False
    count -= channel.held if channel.spills else 0
    if lost:
        text = "channel %s: %d events were not delivered in time; %d of them are lost"
        _log.error(text, channel.name, count, lost)
    elif count:
        text = "channel %s: %d events were not delivered in time: their sources read them again"
        _log.warning(text, channel.name, count)
    return not lost


def _delivers(channel: BatchChannel, count: int) -> Callable[[], bool]:
    """Return a function that tests if the channel is empty, or if as many events have left as it holds at this moment.

    While sources run, a channel is hardly ever empty.
    """
    then = channel.counters.get("EventTakeSuccessCount")
    return lambda: not channel.held or channel.counters.get("EventTakeSuccessCount") - then >= count


def _close(each: BatchChannel | Ledgers) -> None:
    try:
        each.close()
    except ChannelError as error:
        _log.error("%s", error)


def _chosen(named: Mapping[str, _T], names: Collection[str]) -> dict[str, _T]:
    return {name: each for name, each in named.items() if name in names}
