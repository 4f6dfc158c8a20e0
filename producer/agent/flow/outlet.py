"""Pass a source's batches through its interceptors and its selector, and commit them to its channels.

Interceptors and selector see a batch once. The required channels commit it one after the other. If one fails, only that
one and those after it are retried, so that within one process a channel never gets a batch twice.
:mod:`..ledger.ledger` describes what happens across processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import NamedTuple

from ...model.errors import ChannelError, ChannelFullError, InvalidArgumentError
from ...runtime.backoff import Backoff
from ...runtime.clock import Deadline, Stop, WaitingRoom
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ..config.limits import Memory, Pace
from ..events.batch import EventBatch, Position
from ..events.counters import timed
from ..events.interfaces import Interceptor, Selector, UnfitError
from ..ledger.ledger import Ledger
from ..recoveries import recoveries
from .channel import BatchChannel, can_never_take
from .health import Health
from .interception import Interception

_log = get_logger("loghub.agent.source")

#: Seconds between two attempts for a batch that a channel did not take, at first and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
#: The longest delay of a sender that waits for an answer, in seconds, to keep to the limit of CPU.
_LONGEST_ANSWER = 5.0
#: Seconds between two checks whether memory is available again.
_POLL_SECONDS = 0.05


class MemoryFullError(ChannelError):
    """Raised when the process is at its memory limit; nothing was put."""


class SourceOutlet:
    """An :class:`~.interfaces.Outlet`.

    :param source: the source's name.
    :param channels: all channels of the source, by name.
    :param ledger: the source's ledger.
    :param health: records counts and failures of channels that are not full, and shows the batches after the
        interceptors.
    :param pace: the limit of CPU; None for no limit.
    :param memory: the limit of memory; None for no limit.
    """

    def __init__(  # in the order of a batch's path
        self,
        source: str,
        interceptors: Sequence[Interceptor],
        selector: Selector,
        channels: Mapping[str, BatchChannel],
        ledger: Ledger,
        health: Health,
        pace: Pace | None = None,
        *,
        memory: Memory | None = None,
    ) -> None:
        clock = self._clock = health.clock
        self._health, self._counters = health, health.counters
        self._pace = pace or Pace(None, clock)
        self._memory = memory or Memory(None, clock)
        self._looking = WaitingRoom(clock, look_again=_POLL_SECONDS)
        self._room = WaitingRoom(clock, look_again=1.0)
        self._source, self._selector = source, selector
        self._interception = Interception(source, interceptors, self._counters, clock)
        self._channels, self._ledger = channels, ledger
        self._prefix = f"{source}/"
        #: The offset where the last batch of each position's name ended.
        self._ends: dict[str, int] = {}
        self._repeated, self._of_optional = RateLimitedLog(clock), RateLimitedLog(clock)

    def put(self, batch: EventBatch, timeout: float | None = None, *, refuse: bool = True) -> None:
        self._wait_for_memory(timeout)
        try:
            passage = self._passage(batch)
            self._commit(passage, timeout, refuse=refuse)
        except ChannelError as error:
            self._note(error)
            raise
        self._end(passage)
        self._pace.rest(lambda pause: self._room.wait_until(bool, Deadline.after(self._clock, pause)), _LONGEST_ANSWER)

    def put_until(self, batch: EventBatch, stop: Stop) -> bool:
        while not self._has_memory():
            self._log_error(self._no_memory())
            if stop.wait(_POLL_SECONDS):
                return False
        passage, backoff = self._passage(batch), Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                self._commit(passage, None, stop)
                self._end(passage)
                self._pace.rest(stop.wait)
                return True
            except ChannelError as error:
                if stop.is_set() and isinstance(error, ChannelFullError):
                    return False
                self._log_error(error)
            self._counters.add(ChannelWriteFail=1)
            if stop.wait(backoff.next_pause()):
                return False

    @property
    def short_of_memory(self) -> bool:
        """True if a put would wait for memory. Sources that can refuse a request do so before reading it."""
        return not self._has_memory()

    def ends(self, name: str) -> Sequence[int]:
        return self._ledger.ends(self._prefix + name)

    def is_safe(self, name: str) -> bool:
        full = self._prefix + name
        return self._ledger.safe_end(full) >= max(self._ends.get(full, 0), self._ledger.ends(full)[-1])

    def safe_end(self, name: str) -> int:
        return self._ledger.safe_end(self._prefix + name)

    def names(self) -> set[str]:
        return {name.removeprefix(self._prefix) for name in self._ledger.names()}

    def pass_over(self, position: Position) -> None:
        self._ledger.pass_over(self._from_last(position))

    def forget(self, name: str) -> None:
        self._ends.pop(self._prefix + name, None)
        self._ledger.forget(self._prefix + name)

    def _from_last(self, position: Position) -> Position:
        """Return a position as the channels and the ledger know it, starting at the end of the previous one."""
        name = self._prefix + position.name
        start = self._ends.get(name)
        if start is None:
            start = self._ledger.ends(name)[0]
        return Position(name, position.end, position.place, min(start, position.end))

    def _has_memory(self) -> bool:
        """Return True if a batch may enter. With empty channels it always may, since waiting would free nothing."""
        return not self._memory.is_full() or not any(channel.held for channel in self._channels.values())

    def _wait_for_memory(self, timeout: float | None) -> None:
        """Wait for memory.

        :raises MemoryFullError: if none became available in time.
        """
        if self._has_memory():
            return
        patience = max(each.keep_alive for each in self._channels.values()) if timeout is None else timeout
        if not self._looking.wait_until(self._has_memory, Deadline.after(self._clock, patience)):
            error = self._no_memory()
            self._log_error(error)
            self._counters.add(ChannelWriteFail=1)
            raise error

    def _no_memory(self) -> MemoryFullError:
        limit = f"the agent is at its memory limit of {self._memory.limit} bytes (max_memory_bytes)"
        return MemoryFullError(
            ", ".join(self._channels), f"{limit}: speed delivery up, make channels smaller, or raise the limit"
        )

    def _note(self, error: ChannelError) -> None:
        """Record a failure. A full channel is not a failure here: its sink reports the reason."""
        if not isinstance(error, ChannelFullError | MemoryFullError):
            self._health.failed(error)

    def _log_error(self, error: ChannelError) -> None:
        self._note(error)
        more = self._repeated.due_error(error)
        if more is None:
            return
        if isinstance(error, ChannelFullError | MemoryFullError):
            _log.warning("source %s waits: %s%s", self._source, error, more)
        else:
            _log.error("source %s: %s; retrying%s", self._source, error, more)

    def _end(self, passage: _Passage) -> None:
        """Record that all required channels have a batch."""
        if passage.position is not None:
            name, end, *_ = passage.position
            self._ends[name] = max(end, self._ends.get(name, 0))
        self._health.worked()
        if self._repeated.recovered():
            recoveries.info("source %s continues", self._source)

    def _passage(self, batch: EventBatch) -> _Passage:
        self._counters.add(EventReceivedCount=batch.count, AppendBatchReceivedCount=1)
        received = batch.count
        if batch.position is not None:
            batch = batch.at(self._from_last(batch.position))
        with timed(self._counters, "InterceptionMicroseconds", self._clock) if self._interception else nullcontext():
            batch, callbacks = self._interception.run(batch)
        if self._health.tap.viewers:
            self._health.tap.show(batch)
        routes, at = self._selector.select(batch), batch.position
        required = {name: [part] for name, part in self._new_to(routes.required, at).items()}
        optional = self._new_to({n: b for n, b in routes.optional.items() if n not in routes.required}, at)
        return _Passage(at, received, routes.dropped, required, optional, callbacks)

    def _new_to(self, parts: Mapping[str, EventBatch], at: Position | None) -> dict[str, EventBatch]:
        """Return the parts that the channels do not have yet."""
        return {n: part for n, part in parts.items() if part.count and not (at and self._ledger.has(n, at))}

    def _commit(
        self, passage: _Passage, timeout: float | None, stop: Stop | None = None, *, refuse: bool = False
    ) -> None:
        """Commit to every channel that lacks the batch. May be called again after an error.

        :param stop: ends a wait for room.
        :param refuse: True if the source can refuse events.
        :raises ChannelError: if a required channel failed.
        :raises UnfitError: if a required channel can never take the batch.
        """
        for name, parts in passage.required.items():
            while parts:
                try:
                    self._channels[name].put(parts[0], timeout, stop)
                    del parts[0]
                except (ChannelFullError, InvalidArgumentError) as error:
                    parts[:1] = self._without_unfit(name, parts[0], error, refuse=refuse)
        for name, part in passage.optional.items():
            self._put_optional(name, part)
        if passage.position is not None:
            self._ledger.pass_over(passage.position)
        for callback in passage.callbacks:
            callback()
        self._counters.add(EventAcceptedCount=passage.received, AppendBatchAcceptedCount=1)
        if passage.dropped:
            self._counters.add(EventDroppedCount=passage.dropped)

    def _without_unfit(self, name: str, part: EventBatch, error: Exception, *, refuse: bool) -> Sequence[EventBatch]:
        """Return the halves of a batch that a channel can never take. A single event is dropped.

        :raises Exception: ``error``, if the channel may take it later.
        """
        if not can_never_take(error):
            raise error
        if refuse:
            raise UnfitError(f"channel {name} can never take it: {error}") from error
        if part.count > 1:
            return part.halves()
        self._counters.add(EventDroppedCount=1)
        more = self._of_optional.due_error(error)
        if more is not None:
            _log.error(
                "source %s: 1 event dropped: channel %s can never take it: %s%s", self._source, name, error, more
            )
        return ()

    def _put_optional(self, name: str, part: EventBatch) -> None:
        try:
            self._channels[name].put(part, 0)
        except (ChannelError, InvalidArgumentError) as error:
            self._counters.add(OptionalChannelWriteFail=1, OptionalChannelEventFailCount=part.count)
            more = self._of_optional.due_error(error)
            if more is not None:
                _log.warning(
                    "source %s: %d events not put into the optional channel %s: %s%s",
                    *(self._source, part.count, name, error, more),
                )


class _Passage(NamedTuple):
    """One batch on its path into the channels.

    :ivar received: the number of its events before the interceptors.
    :ivar required: parts that are not committed yet, by channel.
    :ivar callbacks: called once all required channels have the batch.
    """

    position: Position | None
    received: int
    dropped: int
    required: dict[str, list[EventBatch]]
    optional: Mapping[str, EventBatch]
    callbacks: Sequence[Callable[[], None]]
