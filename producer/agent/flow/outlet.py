"""SourceOutlet: what a source puts goes through its interceptors and its selector, and is committed to its channels.

Interceptors and selector see a batch once. The required channels commit it one after the other; where one cannot,
only that one, and those behind it, are asked again: so as long as the process lives, a batch does not come twice to a
channel that had it. What happens beyond is told in :mod:`.positions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial

from ...model.errors import ChannelError, ChannelFullError, InvalidArgumentError
from ...runtime.clock import Clock, Deadline, WaitingRoom
from ...runtime.loggers import get_logger
from ...runtime.repeated_log import RepeatedLog
from ..config.limits import Memory, Pace
from ..events.batch import EventBatch, Position
from ..events.counters import Counters, timed
from ..events.interfaces import Interceptor, Selector, Stop, UnfitError
from ..ledger.members import Members, joint_end, tell_found
from ..ledger.positions import Positions
from ..recoveries import recoveries
from .channel import BatchChannel, can_never_take
from .health import Health
from .interception import Interception

_log = get_logger("producer.agent.source")

#: Seconds between two tries of a batch that a channel did not take, at first and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
#: Seconds that whoever waits for an answer is kept waiting, at most, so that the agent uses no more than it may.
_ANSWER = 5.0
#: Seconds between two looks whether the process has memory again.
_LOOK = 0.05


class MemoryFullError(ChannelError):
    """The process has as much memory as it may; nothing was put."""


class SourceOutlet:
    """An :class:`~.interfaces.Outlet`.

    :param source: the source's name.
    :param channels: all that the source writes to, by name.
    :param pace: says how long to wait behind a batch.
    :param memory: says whether the process has memory for another one.
    :param health: is told of channels that cannot take a batch, though they are not full.
    """

    def __init__(
        self,
        source: str,
        interceptors: Sequence[Interceptor],
        selector: Selector,
        channels: Mapping[str, BatchChannel],
        counters: Counters,
        clock: Clock,
        pace: Pace | None = None,
        *,
        memory: Memory | None = None,
        members: Members | None = None,
        health: Health | None = None,
    ) -> None:
        self._health = health or Health(counters, clock)
        self._pace = pace or Pace(None, clock)
        self._memory = memory or Memory(None, clock)
        self._looking = WaitingRoom(clock, look_again=_LOOK)
        self._room = WaitingRoom(clock, look_again=1.0)
        self._source, self._selector = source, selector
        self._interception = Interception(source, interceptors, counters, clock)
        self._channels, self._counters, self._clock = channels, counters, clock
        self._members = members
        #: Of the channels, and of those that the source had before, if these are asked still.
        self._positions: Sequence[Positions] = [channel.positions for channel in channels.values()]
        self._prefix = f"{source}/"
        self._repeated, self._of_optional = RepeatedLog(clock), RepeatedLog(clock)

    def begin(self) -> None:
        """The source begins: its channels say how far they are, each also what it need not have.

        :raises ChannelIOError: what is noted of them cannot be read.
        """
        positions = {name: channel.positions for name, channel in self._channels.items()}
        for each in positions.values():
            each.begin(self._prefix)
        if self._members is not None:
            complete: Sequence[str] = getattr(self._selector, "complete", ())
            exclusive = self._selector.exclusive
            self._positions = self._members.begin(self._prefix, positions, exclusive=exclusive, complete=complete)
        elif self._selector.exclusive:
            tell_found(self._prefix, positions.values())

    def end(self) -> None:
        """The source has ended."""
        if self._members is not None:
            self._members.end(self._prefix)

    def put(self, batch: EventBatch, timeout: float | None = None, *, refuse: bool = True) -> None:
        """See :class:`~.interfaces.Outlet`, as for those that follow."""
        self._wait_for_memory(timeout)
        try:
            self._passage(batch).commit(timeout, refuse=refuse)
        except ChannelError as error:
            self._note(error)
            raise
        self._tell_end()
        self._pace.rest(lambda pause: self._room.wait_until(bool, Deadline.after(self._clock, pause)), _ANSWER)

    def put_until(self, batch: EventBatch, stop: Stop) -> bool:
        while not self._has_memory():
            self._tell(self._no_memory())
            if stop.wait(_LOOK):
                return False
        passage, pause = self._passage(batch), _FIRST_PAUSE
        while True:
            try:
                passage.commit(None, stop)
                self._tell_end()
                self._pace.rest(stop.wait)
                return True
            except ChannelError as error:
                if stop.is_set() and isinstance(error, ChannelFullError):
                    return False
                self._tell(error)
            self._counters.add(ChannelWriteFail=1)
            if stop.wait(pause):
                return False
            pause = min(2 * pause, _LONGEST_PAUSE)

    @property
    def short_of_memory(self) -> bool:
        """Whether a put would wait for memory: who can refuse what it is sent does so before it has read it."""
        return not self._has_memory()

    def ends(self, name: str) -> Sequence[int]:
        full = self._prefix + name
        known = {end for each in self._positions for end in each.ends(full)}
        if not self._selector.exclusive:
            return sorted(known)
        joint = joint_end(self._positions, full)
        return [joint, *sorted(end for end in known if end > joint)]

    def is_safe(self, name: str) -> bool:
        return all(each.is_safe(self._prefix + name) for each in self._positions)

    def safe_end(self, name: str) -> int:
        full = self._prefix + name
        if self._selector.exclusive:
            return joint_end(self._positions, full, safe=True)
        return min(each.safe_end(full) for each in self._positions)

    def names(self) -> set[str]:
        return {
            name.removeprefix(self._prefix)
            for each in self._positions
            for name in each.names()
            if name.startswith(self._prefix)
        }

    def pass_over(self, position: Position) -> None:
        self._note_members()
        full = position._replace(name=self._prefix + position.name)
        for each in self._positions:
            each.passed(full)

    def forget(self, name: str) -> None:
        for each in self._positions:
            each.forget(self._prefix + name)

    def _note_members(self, *, read_again: bool = True) -> None:
        if self._members is not None:
            self._members.note(read_again=read_again)

    def _has_memory(self) -> bool:
        """Whether a batch may come in. One may always where channels are empty: to wait would free nothing."""
        return not self._memory.is_full() or not any(channel.held for channel in self._channels.values())

    def _wait_for_memory(self, timeout: float | None) -> None:
        """
        :raises MemoryFullError: there was none in time.
        """
        if self._has_memory():
            return
        patience = max(each.keep_alive for each in self._channels.values()) if timeout is None else timeout
        if not self._looking.wait_until(self._has_memory, Deadline.after(self._clock, patience)):
            error = self._no_memory()
            self._tell(error)
            self._counters.add(ChannelWriteFail=1)
            raise error

    def _no_memory(self) -> MemoryFullError:
        limit = f"the agent has as much memory as it may, {self._memory.limit} bytes (max_memory_bytes)"
        return MemoryFullError(
            ", ".join(self._channels), f"{limit}: deliver faster, make channels smaller, or raise it"
        )

    def _note(self, error: ChannelError) -> None:
        """One that is full is no failure: its sink says why it is."""
        if not isinstance(error, ChannelFullError | MemoryFullError):
            self._health.failed(error)

    def _tell(self, error: ChannelError) -> None:
        self._note(error)
        more = self._repeated.due(error)
        if more is None:
            return
        if isinstance(error, ChannelFullError | MemoryFullError):
            _log.warning("source %s waits: %s%s", self._source, error, more)
        else:
            _log.error("source %s: %s; it is tried again%s", self._source, error, more)

    def _tell_end(self) -> None:
        self._health.worked()
        if self._repeated.ended():
            recoveries.info("source %s goes on", self._source)

    def _passage(self, batch: EventBatch) -> _Passage:
        self._counters.add(EventReceivedCount=batch.count, AppendBatchReceivedCount=1)
        received = batch.count
        self._note_members(read_again=batch.position is not None)
        if batch.position is not None:
            batch = batch.at(batch.position._replace(name=self._prefix + batch.position.name))
        with timed(self._counters, "InterceptionMicroseconds", self._clock) if self._interception else nullcontext():
            batch, told = self._interception.run(batch)
        passage = partial(_Passage, told=told, repeated=self._of_optional)
        return passage(self._source, batch, received, self._selector, self._channels, self._positions, self._counters)


class _Passage:
    """One batch on its way into the channels.

    :param positions: of the channels, then of those that are asked as well.
    :param told: called once all required channels have it.
    :ivar _required: what has not been committed yet, by channel.
    """

    def __init__(
        self,
        source: str,
        batch: EventBatch,
        received: int,
        selector: Selector,
        channels: Mapping[str, BatchChannel],
        positions: Sequence[Positions],
        counters: Counters,
        *,
        told: Sequence[Callable[[], None]],
        repeated: RepeatedLog,
    ) -> None:
        self._repeated = repeated
        self._source, self._batch, self._received = source, batch, received
        self._channels, self._positions, self._counters, self._told = channels, positions, counters, told
        self._exclusive = selector.exclusive
        #: Who knows from where on the batch is missing, whatever single channels have.
        self._asked = positions if self._exclusive else positions[len(channels) :]
        position = batch.position
        self._start = joint_end(self._asked, position.name) if position and self._asked else None
        routes = selector.select(batch)
        self._dropped = routes.dropped
        self._required = {name: [part] for name, part in self._new_to(routes.required).items()}
        self._optional = self._new_to({n: b for n, b in routes.optional.items() if n not in routes.required})
        required = [channels[name].positions for name in self._required]
        self._others = [each for each in positions if each not in required]

    def commit(self, timeout: float | None, stop: Stop | None = None, *, refuse: bool = False) -> None:
        """Commit to every channel that does not have it; may be called again after an error.

        :param stop: ends a wait for room.
        :param refuse: see :meth:`~.interfaces.Outlet.put`.
        :raises ChannelError: a required channel could not.
        :raises UnfitError: a required channel never can.
        """
        for name, parts in self._required.items():
            while parts:
                try:
                    self._put(name, parts[0], timeout, stop)
                    del parts[0]
                except (ChannelFullError, InvalidArgumentError) as error:
                    parts[:1] = self._without_unfit(name, parts[0], error, refuse=refuse)
        for name, part in self._optional.items():
            self._put_optional(name, part)
        position = self._batch.position
        if position is not None:
            for each in self._others:
                if each.end(position.name) < position.end:
                    each.passed(position)
        for tell in self._told:
            tell()
        self._counters.add(EventAcceptedCount=self._received, AppendBatchAcceptedCount=1)
        if self._dropped:
            self._counters.add(EventDroppedCount=self._dropped)

    def _put(self, name: str, part: EventBatch, timeout: float | None, stop: Stop | None) -> None:
        if part.position is not None and self._start is not None and self._start < part.position.end:
            stretch = part.position.name, self._start, part.position.end
            self._channels[name].positions.again(*stretch, self._safe_end(part.position.name))
        self._channels[name].put(part, timeout, stop)

    def _without_unfit(self, name: str, part: EventBatch, error: Exception, *, refuse: bool) -> Sequence[EventBatch]:
        """The halves of what a channel can never take; nothing in place of a single event, which is dropped.

        :raises Exception: ``error``, if the channel can take it later.
        """
        if not can_never_take(error):
            raise error
        if refuse:
            raise UnfitError(f"channel {name} can never take it: {error}") from error
        if part.count > 1:
            return part.halves()
        self._counters.add(EventDroppedCount=1)
        more = self._repeated.due(error)
        if more is not None:
            _log.error("source %s: 1 event dropped, which %s can never take: %s%s", self._source, name, error, more)
        if part.position is not None:
            self._channels[name].positions.passed(part.position)
        return ()

    def _new_to(self, parts: Mapping[str, EventBatch]) -> dict[str, EventBatch]:
        """Those that the channels do not have from before."""
        return {name: part for name, part in parts.items() if part.count and not self._has(name)}

    def _has(self, name: str) -> bool:
        """Whether a channel has the batch from before, or need not have it."""
        position = self._batch.position
        if position is None:
            return False
        if self._start is not None and (self._exclusive or self._start < position.end):
            return self._start >= position.end
        return self._channels[name].positions.end(position.name) >= position.end

    def _safe_end(self, name: str) -> int | None:
        """None if no channel forgets."""
        return None if all(each.keeps for each in self._asked) else joint_end(self._asked, name, safe=True)

    def _put_optional(self, name: str, part: EventBatch) -> None:
        try:
            self._channels[name].put(part, 0)
        except (ChannelError, InvalidArgumentError) as error:
            self._counters.add(OptionalChannelWriteFail=1, OptionalChannelEventFailCount=part.count)
            more = self._repeated.due(error)
            if more is not None:
                _log.warning(
                    "source %s: %d events are not in the optional %s: %s%s",
                    *(self._source, part.count, name, error, more),
                )
