"""Agent: sources, channels and sinks of one configuration, at work.

They start in the order channels, sinks, sources, and end in the reverse one under one deadline: first no source reads
any more; then the sinks deliver what lies in channels that forget; then all is closed.

With another configuration only what differs ends and begins, in the same orders, and all other components go on. A
channel that is the same keeps its events. One that forgets its events when it is closed is not closed before its sinks
have delivered them: if they cannot, nothing is changed. Whatever fails before the new components begin, the former
ones are started again.

The file is long since these two orders are of one piece.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...model.errors import ChannelError, ProducerError
from ...runtime.clock import Clock, Deadline, Stop, SystemClock, WaitingRoom
from ...runtime.loggers import get_logger
from ...text.plural import counted
from ..config.limits import Memory, Pace
from ..config.model import AgentConfig
from ..config.options import Problem
from ..events.counters import Counters
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
from .former_channels import Beginning, told_left, undelivered
from .reload_status import Reloads
from .supervisor import State, Supervised

_log = get_logger("loghub.agent")
_T = TypeVar("_T")
#: Of the time for an end the sinks have so much to deliver; the rest is for them to end.
_SHARE = 0.9
#: Of the rest, those that deliver at that moment have so much; and so many seconds at most.
_LAST_SHARE, _LAST_SECONDS = 0.8, 10.0
#: Seconds that sinks always have to end.
_GRACE = 0.5


class ChannelStartError(ProducerError):
    """A channel cannot be opened."""


class ReloadError(ProducerError):
    """Another configuration cannot take effect while the agent runs; nothing was changed."""


class UndeliveredError(ReloadError):
    """A channel would lose events that its sinks have not delivered.

    :ivar is_over: whether they have, and it is worth another try.
    """

    def __init__(self, message: str, is_over: Callable[[], bool]) -> None:
        super().__init__(message)
        self.is_over = is_over


class Agent:
    """See the module.

    :param config: checked at once.
    :param changed: is told of each change of a component's state, on any thread.
    :ivar remaining: after :meth:`stop`, how many events lie in each channel that keeps them.
    :ivar undelivered: how many wait in directories of former channels, which no channel uses, in words.
    :ivar reloads: whether it runs what its file says; for who reads that.
    :raises AgentConfigError: with all that is wrong with it.
    """

    def __init__(
        self, config: AgentConfig, clock: Clock | None = None, changed: Callable[[], None] = lambda: None
    ) -> None:
        self._clock = clock or SystemClock()
        self.blueprint: Blueprint = draw(config)
        self._pace = Pace(config.limits.max_cpu, self._clock)
        self._memory = Memory(config.limits.max_memory_bytes, self._clock)
        self.counters: dict[str, Counters] = {}
        self._ledgers = Ledgers(Path(config.state) / "sources", self._clock)
        self._health: dict[str, Health] = {}
        self._putting: dict[str, Health] = {}
        self.channels: dict[str, BatchChannel] = {}
        self.sources: dict[str, Supervised] = {}
        self.sinks: dict[str, Supervised] = {}
        self._reading: dict[str, Source] = {}
        self._delivering: dict[str, SinkProcessor] = {}
        self.remaining: dict[str, int] = {}
        self.undelivered: dict[str, str] = {}
        self.reloads = Reloads()
        self._changes = WaitingRoom(self._clock, look_again=1.0)
        self._changed = changed

    @property
    def clock(self) -> Clock:
        """What it waits by."""
        return self._clock

    @property
    def config(self) -> AgentConfig:
        """What it was made of."""
        return self.blueprint.config

    def start(self) -> None:
        """Open the channels, and begin.

        :raises ChannelStartError: a channel cannot be opened; nothing has begun.
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
            _log.warning("agent %s: %s", self.config.name, told_left(directory, waits))

    def reload(self, config: AgentConfig) -> Changes:
        """Go on with another configuration: end and begin what differs.

        :returns: what that was.
        :raises AgentConfigError: something is wrong with it, and nothing was changed; as for the next ones.
        :raises ChannelStartError: a channel cannot be opened.
        :raises ReloadError: it cannot be done while the agent runs.
        """
        new = draw(config)
        self._check_the_agent_stays(config)
        changes = compare(self.blueprint, new)
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
        """Return True once each source that listens does; one that failed is tried again, and is not waited for."""
        return all(self._is_listening(name, source) for name, source in list(self.sources.items()))

    def _is_listening(self, name: str, source: Supervised) -> bool:
        if source.state not in (State.NEW, State.RUNNING):
            return True
        reading = self._reading.get(name)
        listening: threading.Event | None = getattr(reading, "listening", None)
        return reading is not None and (listening is None or listening.is_set())

    def finished(self) -> bool:
        """Whether every source has nothing left to do."""
        return all(source.state is State.FINISHED for source in self.sources.values())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every source has nothing left to do; False if that is not so in time."""
        return self._changes.wait_until(self.finished, Deadline.after(self._clock, timeout))

    def delivered(self) -> bool:
        """Whether no event waits for a sink."""
        return not any(channel.held for name, channel in self.channels.items() if self._is_served(name))

    def lag(self, source: str) -> Lag | None:
        """How far a source is behind; None if it does not run, or cannot tell."""
        tell: Callable[[], Lag] | None = getattr(self._reading.get(source), "lag", None)
        return None if tell is None else tell()

    def trouble(self, sink: str) -> str | None:
        """What keeps a sink, or a group, from delivering for a while; None if nothing does."""
        health = self._health.get(sink)
        return None if health is None else health.trouble()

    def trouble_of_source(self, source: str) -> str | None:
        """What keeps a source from putting for a while, though its channels are not full; None if nothing does."""
        health = self._putting.get(source)
        return None if health is None else health.trouble()

    def stop(self, timeout: float | None = None) -> bool:
        """End in order; False if something had not ended in time.

        :param timeout: seconds; None is the configuration's ``stop_timeout``.
        """
        timeout = self.config.stop_timeout if timeout is None else timeout
        deadline, delivered = (Deadline.after(self._clock, each) for each in (timeout, _SHARE * timeout))
        late, forgetting = _end(self.sources, deadline), self._forgetting(self.channels)
        served = [channel for channel in forgetting if self._is_served(channel.name)]
        names = {channel.name for channel in served}
        self._tell_sinks([part.name for part in self.blueprint.sinks.values() if part.channel not in names], deadline)
        _wait_until_empty(served, delivered)
        late += self._end_sinks(self.sinks, deadline)
        lost = [channel.name for channel in forgetting if channel.held and not _forgets_well(channel)]
        kept = (channel for channel in self.channels.values() if channel not in forgetting or channel.spills)
        self.remaining = {channel.name: channel.held for channel in kept if channel.held}
        for channel in self.channels.values():
            _close(channel)
        _close(self._ledgers)
        return not (late or lost)

    def _tell_sinks(self, names: Collection[str], deadline: Deadline) -> None:
        """They are to end: what they deliver at this moment is finished, or given up in time."""
        left = _LAST_SHARE * (deadline.remaining(self._clock) or 0.0)
        for sink in _chosen(self.sinks, names).values():
            sink.stop()
        for processor in _chosen(self._delivering, names).values():
            give_up(processor, Deadline.after(self._clock, min(left, _LAST_SECONDS)))

    def _end_sinks(self, names: Collection[str], deadline: Deadline) -> list[str]:
        """Who has not ended in time."""
        self._tell_sinks(names, deadline)
        soonest = self._clock.monotonic() + _GRACE
        latest = deadline.at if deadline.at is None else max(deadline.at, soonest)
        return _end(_chosen(self.sinks, names), Deadline(latest))

    # -- what a reload does

    def _replace(self, new: Blueprint, changes: Changes, undo: ExitStack) -> dict[str, BatchChannel]:
        """End what ends, and open what was closed anew.

        :param undo: what is to be done should this fail.
        """
        deadline = Deadline.after(self._clock, self.config.stop_timeout)
        _end(_chosen(self.sources, changes.sources_ended), deadline)
        self._empty(changes.channels_ended, deadline)
        # Those first that may put dead letters there meanwhile: these are to be delivered as well.
        burying = {name for name in changes.sinks_ended if self._buries_in(name) in changes.channels_ended}
        late_ones = self._end_sinks(burying, deadline)
        if burying:
            self._empty(changes.channels_ended, deadline)
        for sink in late_ones + self._end_sinks(changes.sinks_ended - burying, deadline):
            # It still has events, and gives them back, or delivers them, when it ends: the order is lost.
            self.channels[self.blueprint.sinks[sink].channel].origins = None
        state, used = self.config.state, [place[0] for place in places_of(new.channels, self.config.state).values()]
        former = places_of(self.blueprint.channels, state)
        former = {name: place for name, place in former.items() if place[0] not in used}
        self.undelivered = {place: waits for place, waits in self.undelivered.items() if place not in used}
        for name in changes.channels_ended:
            channel = self.channels[name]
            left = former.get(name)
            if left is not None and channel.held:
                self.undelivered[left[0]] = counted(channel.held, "event")
                _log.warning("agent %s: %s", self.config.name, told_left(left[0], self.undelivered[left[0]]))
            _close(channel)
        undo.callback(self._reopen, changes.channels_ended)
        late = changes.channels_begun & changes.channels_ended
        return self._open({name: new.channels[name] for name in late})

    def _empty(self, names: Collection[str], deadline: Deadline) -> None:
        """Let what would be forgotten be delivered.

        :raises ReloadError: it is not in time, or never.
        """
        forgetting = self._forgetting(_chosen(self.channels, names))
        _wait_until_empty([channel for channel in forgetting if self._is_served(channel.name)], deadline)
        for channel in forgetting:
            served = self._is_served(channel.name)
            if held := channel.held:
                told = f"channel {channel.name} holds {counted(held, 'event')} that would be lost"
                if not served:
                    raise ReloadError(f"{told}: no sink takes from it; give it one, or leave it as it is")
                text = f"{told}: its sinks did not deliver them in {self.config.stop_timeout:g} s"
                raise UndeliveredError(f"{text}; it is tried again once they have", _delivers(channel, held))

    def _reopen(self, names: Collection[str]) -> None:
        self.channels = self.channels | self._open(_chosen(self.blueprint.channels, names))

    def _resume(self) -> None:
        """Begin again what was told to end."""
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
        self.counters = {name: counters for name, counters in self.counters.items() if name not in removed}
        self._health = {name: health for name, health in self._health.items() if name not in changes.sinks_ended}

    def _check_the_agent_stays(self, config: AgentConfig) -> None:
        for key in ("name", "state"):
            old, new = getattr(self.config, key), getattr(config, key)
            if old != new:
                message = f"was {str(old)!r} at the start, and is {str(new)!r} now: start again"
                raise ReloadError(str(Problem("agent", key, message, config.lines.get(key))))

    # -- components

    def _open_ledgers(self, sources: Iterable[str]) -> None:
        """
        :raises ChannelStartError: one cannot be read.
        """
        for name in sources:
            try:
                self._ledgers.of(name)
            except ChannelError as error:
                raise ChannelStartError(f"source {name} cannot read its ledger: {error}") from error

    def _open(self, parts: Mapping[str, Part]) -> dict[str, BatchChannel]:
        """All or none.

        :raises ChannelStartError: one cannot be opened.
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
            if takers.count(name) != 1:  # what is taken by several is not delivered in the order of its numbers
                channel.origins = None
            channel.losses.begin(self._ledgers, self._read_again)
        # They are known before they run: whoever has one begin anew does so by its name.
        begun = {name: self._sink(part) for name, part in blueprint.sinks.items() if name in sinks}
        self.sinks = self.sinks | begun
        _start(begun)
        begun = {name: self._source(part) for name, part in blueprint.sources.items() if name in sources}
        self.sources = self.sources | begun
        _start(begun)

    def _begin_ledgers(self, blueprint: Blueprint, sources: Collection[str]) -> list[str]:
        """Have ledgers know what their channels hold, and the configuration of sources that are to begin.

        :returns: directories of former channels that no channel uses.
        :raises ChannelIOError: former notes cannot be read.
        """
        beginning = Beginning(self._ledgers, blueprint, sources)
        for channel in self.channels.values():
            channel.attach(self._ledgers)
        beginning.begin(self._former_state)
        for line in beginning.told:
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
        """Have sources begin anew: a channel has lost what they have read under these names."""
        for source in _chosen(self.sources, set(map(_source_of, names))).values():
            source.again()

    def _forgetting(self, channels: Mapping[str, BatchChannel]) -> list[BatchChannel]:
        return [channel for channel in channels.values() if not channel.keeps]

    def _buries_in(self, sink: str) -> str | None:
        """The channel of its dead letters."""
        return self.blueprint.sinks[sink].dead_letters

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
                    context.counters,
                    dead_letters=letters,
                    most_events=min(sink.most_events for sink in sinks.values()),
                    most_bytes=min(sink.most_bytes for sink in sinks.values()),
                    patience=_patience(sinks.values()),
                    hurried=lambda: bool(self.sources) and self.finished(),
                    clock=self._clock,
                    health=self._health_of(context),
                    pace=self._pace,
                ).run(stop)
            finally:
                processor.close()

        return self._supervise("sink", part.name, run, context)

    def _make_sinks(self, part: SinkPart) -> dict[str, Sink]:
        """By name; of a group those, too, that cannot be made now.

        :raises Exception: none can.
        """
        contexts = {each.name: self._context("sinks", each.name) for each in part.sinks}
        if part.name in contexts:
            return {each.name: each.make(contexts[each.name]) for each in part.sinks}
        sinks = {
            each.name: CountedSink(
                partial(each.make, contexts[each.name]),
                contexts[each.name].counters,
                self._health_of(contexts[each.name]),
                partial(self._begin_anew, part.name),
            )
            for each in part.sinks
        }
        failures = [sink.failure for sink in sinks.values() if sink.failure is not None]
        if len(failures) == len(sinks):
            raise failures[0]
        return dict(sinks)

    def _begin_anew(self, sink: str) -> None:
        self.sinks[sink].again()

    def _health_of(self, context: Context) -> Health:
        return self._health.setdefault(context.name, Health(context.counters, self._clock))

    def _putting_of(self, context: Context) -> Health:
        made = Health(context.counters, self._clock, "has put nothing into its channels", FORGOTTEN)
        return self._putting.setdefault(context.name, made)

    def _source(self, part: SourcePart) -> Supervised:
        name = part.source.name
        context = self._context("sources", name)
        channels = {channel: self.channels[channel] for channel in part.channels}

        def run(stop: Stop) -> None:
            interceptors = [each.make(self._within(context, each.name)) for each in part.interceptors]
            selector = part.selector.make(context, channels)
            told = self._ledgers.of(name), context.counters, self._clock, self._pace
            health = self._putting_of(context)
            outlet = SourceOutlet(*(name, interceptors, selector, channels, *told), memory=self._memory, health=health)
            source: Source = part.source.make(context)
            self._reading[name] = source
            source.run(outlet, stop)

        return self._supervise("source", name, run, context)

    def _supervise(self, kind: str, name: str, run: Callable[[Stop], None], context: Context) -> Supervised:
        return Supervised(kind, name, run, context.counters, self._clock, self._tell)

    def _tell(self) -> None:
        self._changes.wake_all()
        self._changed()

    def _context(self, kind: str, name: str) -> Context:
        counters = self.counters.setdefault(f"{kind}.{name}", Counters())
        state = Path(self.config.state) / kind / name
        return Context(self.config.name, name, state, counters, self._clock)

    def _within(self, source: Context, interceptor: str) -> Context:
        """An interceptor counts with its source: that is what the monitoring shows."""
        state = Path(self.config.state) / "interceptors" / source.name / interceptor
        return replace(source, name=interceptor, state=state)


def _source_of(position: str) -> str:
    return position.partition("/")[0]


def _start(parts: Mapping[str, Supervised]) -> None:
    for part in parts.values():
        part.start()


def _end(parts: Mapping[str, Supervised], deadline: Deadline) -> list[str]:
    """Who has not ended in time."""
    for part in parts.values():
        part.stop()
    late = [part for part in parts.values() if not part.join(deadline)]
    for part in late:
        _log.error("%s %s has not ended in time", part.kind, part.name)
    return [part.name for part in late]


def _wait_until_empty(channels: Sequence[BatchChannel], deadline: Deadline) -> None:
    """All at once: what is refused of one may be a dead letter in another, which was empty before."""
    while any(channel.held for channel in channels):
        if not all(channel.wait_until_empty(deadline) for channel in channels):
            return


def _patience(sinks: Iterable[Sink]) -> Patience | None:
    """Of several sinks the shortest; none if one of them has none."""
    found: list[Patience | None] = [getattr(sink, "patience", None) for sink in sinks]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    return Patience(min(each.seconds for each in known), min(each.idle for each in known))


def _forgets_well(channel: BatchChannel) -> bool:
    """Say what a channel had not delivered, and forgets; whether all of it is read again."""
    count, lost = channel.held, channel.discard()
    count -= channel.held if channel.spills else 0
    if lost:
        text = "channel %s: %d events were not delivered in time; %d of them are lost"
        _log.error(text, channel.name, count, lost)
    elif count:
        text = "channel %s: %d events were not delivered in time: their sources read them again"
        _log.warning(text, channel.name, count)
    return not lost


def _delivers(channel: BatchChannel, count: int) -> Callable[[], bool]:
    """Asks whether a channel has nothing, or so many events have left it from now on: with sources at work it is hardly
    ever seen empty.
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
