"""Protocols of an agent's components: sources, interceptors, selectors, sinks and sink processors.

A component is a class with ``Options``, a frozen dataclass of :func:`~.options.option` fields. It is built from its
options and a :class:`Context`. It is found by its name, as a built-in type or an entry point (:mod:`.registry`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from ...model.errors import ProducerError
from ...runtime.clock import Clock, Deadline, Stop, SystemClock
from .batch import EventBatch, Position
from .counters import Counters


class SinkError(ProducerError):
    """Raised when a sink could not deliver. The events stay in the channel, and delivery is retried.

    :ivar later: the batches that were not acknowledged, if others were; None for all.
    """

    def __init__(self, message: str, later: Sequence[EventBatch] | None = None) -> None:
        super().__init__(message)
        self.later = later


class Refusal(NamedTuple):
    """Events that the destination refuses permanently, and the reason.

    :ivar batch: a batch, or a :meth:`~.batch.EventBatch.part` of one.
    :ivar reason: the reason that the dead letters carry.
    :ivar undeliverable: True if no destination could take the events, since the sink cannot encode them. Without dead
        letters they are dropped and counted.
    :ivar attempts: the number of requests made for them.
    :ivar request_id: the destination's ID of the last request; empty for none.
    """

    batch: EventBatch
    reason: str
    undeliverable: bool = False
    attempts: int = 1
    request_id: str = ""


class RefusedError(ProducerError):
    """Raised when the destination refuses events permanently. They go to the sink's dead letters; the others count as
    delivered.

    :param undeliverable: applies to all batches, as do ``attempts`` and ``request_id``; :class:`Refusal` describes
        them. For refusals that differ, use :meth:`of`.
    :ivar batches: the refused batches, or a :meth:`~.batch.EventBatch.part` of each. Other batches cannot be matched to
        the delivery: all of it goes back to the channel if the dead letters are full.
    :ivar refusals: the refused batches, each with its reason.
    :ivar later: batches after the refused ones that were not delivered; they go back to the channel.
    :ivar in_order: True if no later batch may be delivered before the refused ones.
    :ivar numbered: True if the destination tracks each batch by its number, whatever the order, and the sink tracks its
        refusals.
    """

    def __init__(
        self,
        message: str,
        batches: Sequence[EventBatch],
        later: Sequence[EventBatch] = (),
        *,
        in_order: bool = False,
        numbered: bool = False,
        undeliverable: bool = False,
        attempts: int | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(message)
        attempts = int(not undeliverable) if attempts is None else attempts
        self.refusals = [Refusal(batch, message, undeliverable, attempts, request_id) for batch in batches]
        self.later, self.in_order, self.numbered = later, in_order, numbered

    @classmethod
    def of(
        cls,
        refusals: Sequence[Refusal],
        later: Sequence[EventBatch] = (),
        *,
        in_order: bool = False,
        numbered: bool = False,
    ) -> RefusedError:
        """Build the error for events that are refused for several reasons.

        :param refusals: the refusals, at least one.
        """
        error = cls(refusals[0].reason, [], later, in_order=in_order, numbered=numbered)
        error.refusals = list(refusals)
        return error

    @property
    def batches(self) -> list[EventBatch]:
        """The refused batches, or parts of batches."""
        return [refusal.batch for refusal in self.refusals]


class UnfitError(ProducerError):
    """Raised when a channel can never take a batch because of its events. Sending it again is useless."""


def left_of(error: Exception, batches: Sequence[EventBatch]) -> Sequence[EventBatch]:
    """Return the batches that a failed sink has not delivered."""
    if isinstance(error, RefusedError):
        return [*error.batches, *error.later]
    return error.later if isinstance(error, SinkError) and error.later is not None else batches


@dataclass(frozen=True, slots=True)
class Context:
    """The environment of a component.

    :ivar agent: the agent's name.
    :ivar name: the component's name.
    :ivar state: a directory for the component's state between runs; created on first use.
    :ivar counters: the component's counters, for the monitoring. An interceptor shares its source's.
    :ivar clock: the time.
    """

    agent: str
    name: str
    state: Path
    counters: Counters = field(default_factory=Counters)
    clock: Clock = field(default_factory=SystemClock)


class Outlet(Protocol):
    """The receiver of a source's batches: it runs the interceptors and the selector, and commits to the channels."""

    def put(self, batch: EventBatch, timeout: float | None = None, *, refuse: bool = True) -> None:
        """Return once every required channel has committed the batch.

        :param timeout: seconds to wait for room in a channel; None for the channels' ``keep_alive``.
        :param refuse: True if the source can refuse events. Otherwise events that a channel can never take are dropped,
            counted and logged.
        :raises UnfitError: if a channel can never take the batch.
        :raises ChannelError: if a channel failed. A second put may then duplicate the batch in the other channels; a
            source that can wait calls :meth:`put_until` instead.
        """

    def put_until(self, batch: EventBatch, stop: Stop) -> bool:
        """Put a batch into each channel once, for as long as it takes. For sources that can wait.

        Events that a channel can never take are dropped, counted and logged.

        :returns: False if ``stop`` came before all channels had the batch.
        """

    def ends(self, name: str) -> Sequence[int]:
        """Return the offsets at which the source must end a batch, sorted.

        These are the committed offset of each channel for this name, and the bounds of ranges that a channel has beyond
        it. A source that resumes at the first, and ends a batch at each of the others, duplicates nothing in any
        channel.
        """

    def is_safe(self, name: str) -> bool:
        """Return True if the data read under this name may be deleted.

        Then a crash loses none of it, since channels without persistence have delivered it.
        """

    def safe_end(self, name: str) -> int:
        """Return the offset below which a crash loses nothing of this name.

        Persistent channels have committed the data below it, and the others have delivered it.
        """

    def names(self) -> set[str]:
        """Return the names of all positions that the channels have from this source."""

    def pass_over(self, position: Position) -> None:
        """Record that there is nothing to put up to this position."""

    def forget(self, name: str) -> None:
        """Forget a name whose data is gone permanently."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a source behind its input; None for a value that it cannot know.

    :ivar events: events not read yet.
    :ivar bytes: bytes not read yet.
    :ivar seconds: the age of the oldest unread data.
    """

    events: int | None = None
    bytes: int | None = None
    seconds: float | None = None


class Source(Protocol):
    """Reads events, and puts them into its outlet.

    A source with a method ``lag() -> Lag`` reports its lag; the monitoring calls it on another thread. A source that
    listens has ``listening``, a ``threading.Event``; the agent is ready once it is set. A source that always waits for
    more has the class attribute ``endless = True``; ``--until-done`` then refuses it.

    For ``producer agent test`` a source has a static method ``decode_sample(options, data, clock)``, which returns the
    batch of the events in ``data``; without it, each line is an event. A sink has ``render_sample(options, event,
    clock)``, which returns the text of a batch of one event as the destination gets it; without it, that is the event
    as JSON.

    For ``producer agent check --connect`` a source may have a static method ``ask(options)``, which asks its peer
    without taking an event, and returns a sentence or raises ``ProducerError``.
    """

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """Work until ``stop``. Acknowledge to a sender only events for which :meth:`Outlet.put` has returned.

        It may raise. The agent then builds a new object, and runs it after a pause. Returning before ``stop`` means
        that nothing is left to read.
        """


class Interceptor(Protocol):
    """Changes batches. Several threads may call it at once if the source has several.

    ``producer agent test`` passes over an interceptor with the class attribute ``connects = True``.

    An interceptor may have a method ``committed``. It is called with each batch that :meth:`intercept` returned, once
    all required channels have committed the batch. One with threads or connections has a method ``close``, which is
    called when its source has ended.
    """

    def intercept(self, batch: EventBatch) -> EventBatch:
        """Return the batch or another one in its place, with fewer events if some are dropped."""


class Selector(Protocol):
    """Chooses channels for events.

    :ivar exclusive: True if each event goes to one channel, chosen non-deterministically. An event that one channel has
        is then not put into another.
    """

    exclusive: bool

    def select(self, batch: EventBatch) -> Routes:
        """Return the part of the batch for each channel."""


@dataclass(frozen=True, slots=True)
class Routes:
    """The part of a batch that each channel gets.

    :ivar required: the parts by channel; the source waits until these are committed.
    :ivar optional: parts by channel whose failures are only logged and counted.
    :ivar dropped: the number of events that no channel gets.
    """

    required: Mapping[str, EventBatch]
    optional: Mapping[str, EventBatch] = field(default_factory=dict)
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Patience:
    """The longest time that a sink waits to fill one delivery.

    :ivar seconds: seconds since the first batch was taken.
    :ivar idle: seconds since the last batch was taken.
    """

    seconds: float
    idle: float


class Sink(Protocol):
    """Delivers events.

    A sink that makes large deliveries has ``patience``, a :class:`Patience`. Batches are then taken until there are
    ``most_events`` or ``most_bytes``, the patience ends, or the channel is half full.

    A sink with work to do while idle, such as closing a file in time, has a method ``tick``. The thread that calls
    :meth:`write` calls it between writes, and twice a second while there is nothing to write.

    A sink whose :meth:`write` may take long has a method ``give_up(deadline)``, which another thread calls when the
    sink is to end. A ``write`` in progress then makes no new attempt, and returns or raises by the deadline.

    :ivar most_events: the maximum number of events in one call of :meth:`write`.
    :ivar most_bytes: the maximum bytes in one call; a single batch may be larger.
    """

    most_events: int
    most_bytes: int

    def write(self, batches: Sequence[EventBatch]) -> None:
        """Deliver, and return once the destination has acknowledged everything.

        :raises SinkError: if batches were not delivered, and are to be retried. Any other exception has the same
            effect.
        :raises RefusedError: if the destination refuses events permanently.
        """

    def close(self) -> None:
        """Close files and connections. Called once, on the thread that stops the sink."""


class SinkProcessor(Protocol):
    """Chooses a sink of a group for each delivery."""

    def write(self, batches: Sequence[EventBatch]) -> None:
        """Deliver with one of the sinks, as :meth:`Sink.write` does."""

    def close(self) -> None:
        """Close all sinks."""


def give_up(component: object, deadline: Deadline) -> None:
    """Call a sink's or a processor's ``give_up``, if it has one."""
    method: Callable[[Deadline], None] | None = getattr(component, "give_up", None)
    if method is not None:
        method(deadline)


def tick(component: object) -> None:
    """Call a sink's or a processor's ``tick``, if it has one."""
    method: Callable[[], None] | None = getattr(component, "tick", None)
    if method is not None:
        method()
