"""What a component of an agent is: the protocols of sources, interceptors, selectors, sinks and sink processors.

A component is a class with ``Options``, a frozen dataclass of :func:`~.options.option` fields, and is made from those
and a :class:`Context`. It is found by its name among the built-in ones or by an entry point (:mod:`.registry`).
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
    """A sink could not deliver; the events stay in the channel, and it is tried again.

    :ivar later: the batches that were not acknowledged, if the others were; None is all of them.
    """

    def __init__(self, message: str, later: Sequence[EventBatch] | None = None) -> None:
        super().__init__(message)
        self.later = later


class Refusal(NamedTuple):
    """Events that will never be delivered, and why.

    :ivar batch: a batch, or a :meth:`~.batch.EventBatch.part` of one.
    :ivar reason: what the dead letters say.
    :ivar undeliverable: True if no destination could take them, as the sink cannot even write them: without dead
        letters they are dropped and counted.
    :ivar attempts: requests that were made for them.
    :ivar request_id: the destination's name for the last request; empty for none.
    """

    batch: EventBatch
    reason: str
    undeliverable: bool = False
    attempts: int = 1
    request_id: str = ""


class RefusedError(ProducerError):
    """The destination will never take these; they go to the sink's dead letters, and the rest counts as delivered.

    :param undeliverable: of all batches, as the following, see :class:`Refusal`; :meth:`of` takes refusals that differ.
    :ivar batches: what was refused: batches, or a :meth:`~.batch.EventBatch.part` of each. Of other ones nobody knows
        which they were: all that was to be delivered goes back if the dead letters are full.
    :ivar refusals: the same, each with its reason.
    :ivar later: what was not delivered since it comes behind; it goes back to the channel.
    :ivar in_order: whether nothing that comes behind may be delivered before these.
    :ivar numbered: whether the destination knows by its number what it has of each of these batches, also behind higher
        ones, and the sink what it refuses.
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
        """Build the error of events that are refused for several reasons.

        :param refusals: at least one.
        """
        error = cls(refusals[0].reason, [], later, in_order=in_order, numbered=numbered)
        error.refusals = list(refusals)
        return error

    @property
    def batches(self) -> list[EventBatch]:
        """The refused batches, or parts of batches."""
        return [refusal.batch for refusal in self.refusals]


class UnfitError(ProducerError):
    """A channel can never take a batch, for what its events are; who sent them need not send them again."""


def left_of(error: Exception, batches: Sequence[EventBatch]) -> Sequence[EventBatch]:
    """What a sink that failed has not delivered."""
    if isinstance(error, RefusedError):
        return [*error.batches, *error.later]
    return error.later if isinstance(error, SinkError) and error.later is not None else batches


@dataclass(frozen=True, slots=True)
class Context:
    """What a component is given besides its options.

    :ivar agent: the agent's name.
    :ivar name: the component's.
    :ivar state: a directory of the component's own, for what it keeps between runs; made when it is first used.
    :ivar counters: what it counts; shown by the monitoring, of an interceptor with its source.
    :ivar clock: time.
    """

    agent: str
    name: str
    state: Path
    counters: Counters = field(default_factory=Counters)
    clock: Clock = field(default_factory=SystemClock)


class Outlet(Protocol):
    """Where a source puts what it reads: behind it are its interceptors, its selector and its channels."""

    def put(self, batch: EventBatch, timeout: float | None = None, *, refuse: bool = True) -> None:
        """Return once every required channel has committed the batch.

        :param timeout: seconds to wait for room in a channel; None is the channels' ``keep_alive``.
        :param refuse: whether the source can refuse events; otherwise those that a channel can never take are dropped,
            counted and told.
        :raises UnfitError: a channel can never take the batch.
        :raises ChannelError: not all channels have. What is put again may then come twice to those that have: a source
            that can, calls :meth:`put_until`.
        """

    def put_until(self, batch: EventBatch, stop: Stop) -> bool:
        """Put a batch, for as long as it takes: each channel gets it once. For sources that can wait. Events that a
        channel can never take are dropped, counted and told.

        :returns: False if ``stop`` came before all channels had it.
        """

    def ends(self, name: str) -> Sequence[int]:
        """Up to where the channels have what is read under that name, each its own end, and where what they have beyond
        begins and ends, sorted. A source goes on at the first, and ends a batch at each of the others: then no channel
        gets anything twice.
        """

    def is_safe(self, name: str) -> bool:
        """Whether what was read under that name may be deleted: nothing that was put is lost then if the process dies,
        since channels that forget have delivered it.
        """

    def safe_end(self, name: str) -> int:
        """Up to where nothing of what is read under that name is lost if the process dies: committed by channels that
        keep it, and delivered by those that forget.
        """

    def names(self) -> set[str]:
        """The names of all positions that channels have from this source."""

    def pass_over(self, position: Position) -> None:
        """Note that there is nothing to put up to there."""

    def forget(self, name: str) -> None:
        """What was read under that name is gone for good."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a source is behind what it reads; None for what it cannot tell.

    :ivar events: not read yet.
    :ivar bytes: likewise.
    :ivar seconds: since the oldest of what is not read yet was written.
    """

    events: int | None = None
    bytes: int | None = None
    seconds: float | None = None


class Source(Protocol):
    """Reads events, and puts them into its outlet.

    One that also has a method ``lag() -> Lag`` is asked by the monitoring, on another thread.
    One that listens has ``listening``, a ``threading.Event`` that it sets then: the agent is ready once it is set.
    One that always waits for more has ``endless = True`` in its class: ``--until-done`` is refused then.
    """

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """Work until ``stop``; acknowledge to whoever sends only what :meth:`Outlet.put` has returned for.

        It may raise: it is run again, after a while, on an object made anew. Returning before ``stop`` means that there
        is nothing left to do.
        """


class Interceptor(Protocol):
    """Changes what passes; by several threads at once, where the source has several.

    One that also has a method ``committed`` is given what it returned again, once all required channels have it.
    """

    def intercept(self, batch: EventBatch) -> EventBatch:
        """The batch, or another one in its place; fewer events if some are dropped."""


class Selector(Protocol):
    """Chooses channels for events.

    :ivar exclusive: whether each event goes to one of the channels, by no rule that would choose the same one again:
        then what one of them has, none of the others needs.
    """

    exclusive: bool

    def select(self, batch: EventBatch) -> Routes:
        """For each channel what it gets."""


@dataclass(frozen=True, slots=True)
class Routes:
    """Which channel gets what of a batch.

    :ivar required: by the channel's name; the source waits until these have committed.
    :ivar optional: likewise; what fails there is logged and counted, nothing else.
    :ivar dropped: how many events no channel gets.
    """

    required: Mapping[str, EventBatch]
    optional: Mapping[str, EventBatch] = field(default_factory=dict)
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a sink waits until there is enough for one delivery.

    :ivar seconds: since the first batch was taken.
    :ivar idle: since the last one was.
    """

    seconds: float
    idle: float


class Sink(Protocol):
    """Delivers events.

    One that delivers much at a time has ``patience``, a :class:`Patience`: batches are taken until there are
    ``most_events`` or ``most_bytes``, it was long enough, or the channel is half full.

    One that has something to do when nothing comes, such as to end a file when its time is over, has a method ``tick``,
    called by the thread that calls :meth:`write`: between writes, and twice a second where there is nothing to write.

    One whose :meth:`write` may take long has a method ``give_up(deadline)``, called by another thread when the sink is
    to end: a ``write`` that goes on then makes no new attempts, and returns or raises by that deadline.

    :ivar most_events: of one call of :meth:`write`.
    :ivar most_bytes: likewise; a single batch may be larger.
    """

    most_events: int
    most_bytes: int

    def write(self, batches: Sequence[EventBatch]) -> None:
        """Deliver, and return once the destination has acknowledged all.

        :raises SinkError: not delivered, to be tried again; any other exception counts as one.
        :raises RefusedError: some never will be.
        """

    def close(self) -> None:
        """Let go of files and connections; called once, on whatever thread stops the sink."""


class SinkProcessor(Protocol):
    """Chooses a sink of a group for each delivery."""

    def write(self, batches: Sequence[EventBatch]) -> None:
        """As :meth:`Sink.write`, by one of the sinks."""

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
