"""What the sinks of calls share: a connection to one receiver, and a status for what it was given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Any, NamedTuple

from ...model.options import option
from ...runtime.clock import NO_DEADLINE, Deadline
from ..config.flume_keys import without_needless
from ..events.batch import EventBatch
from ..events.interfaces import Context, SinkError
from .peers import FRAME, OversizedError, Peer, PeerOptions

_FLUMES_BATCH = "100"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSinkOptions(PeerOptions):
    """Where to, and how much at a time."""

    hostname: str = option(doc="the receiver")
    port: int = option(least=1, most=65535, doc="its port")
    batch_size: int = option(10_000, flume="batch-size", least=1, doc="events of a call, at most")
    most_bytes: int = option(4 << 20, least=1, doc="bytes of these, likewise; Flume takes frames of up to 16 MB")
    connect_timeout: float = option(20.0, flume="connect-timeout", scale=0.001, least=0.001, doc="seconds")
    request_timeout: float = option(
        20.0, flume="request-timeout", scale=0.001, least=0.001, doc="seconds that a call may take"
    )


def flumes_keys(texts: Mapping[str, str], needless: Sequence[str]) -> dict[str, str]:
    """What is said in a Flume file; its batches stay as they are: a Flume behind it has channels that take no larger
    ones.
    """
    found = {"batch-size": _FLUMES_BATCH, **without_needless(texts, needless)}
    if "ssl" in found:
        found["tls"] = found.pop("ssl")
        trusting = found.pop("trust-all-certs", "false").lower() == "true"
        found |= {"verify": "false"} if trusting else {}
    return found


class Call(NamedTuple):
    """What is said.

    :ivar events: as :meth:`CallSink._events` gives them.
    :ivar done: so many batches of the delivery are whole with it.
    :ivar part: so many events of the next one the receiver has with it, too.
    :ivar size: bytes, with headers; more than ``most_bytes`` only of a single event.
    """

    events: Sequence[Any]
    done: int
    part: int
    size: int


class CallSink(ABC):
    """See the module.

    :param reset: seconds after which to connect anew; 0 for never.
    """

    def __init__(self, options: CallSinkOptions, context: Context, reset: float) -> None:
        self._address, self._name = (options.hostname, options.port), f"{options.hostname}:{options.port}"
        self._limits, self._reset = options, reset
        self._clock, self._counters = context.clock, context.counters
        self.most_events, self.most_bytes = options.batch_size, options.most_bytes
        self._tls = options.renewed_tls(f"sink {context.name}", context)
        self._peer: Peer | None = None
        self._line: Any = None
        self._end = NO_DEADLINE
        # The number of a batch of which the receiver has acknowledged a part, and how many of its events these are.
        self._begun: tuple[int | None, int] = (None, 0)
        self._since = 0.0
        self._number = 0

    @abstractmethod
    def _events(self, batch: EventBatch, bodies: Sequence[bytes]) -> Iterable[Any]:
        """The events of a batch, as they are said.

        :param bodies: the batch's.
        """

    @abstractmethod
    def _size(self, event: Any, body: bytes) -> int:
        """The bytes of an event with its headers."""

    @abstractmethod
    def _ask(self, line: Any, events: Sequence[Any], deadline: Deadline) -> IntEnum:
        """Say these; the status.

        :param line: of :meth:`_line_to`.

        :raises OSError: the connection broke, or there is no answer in time.
        :raises ValueError: what comes is no answer.
        """

    def _line_to(self, peer: Peer, deadline: Deadline) -> Any:
        """What a new peer is asked by, once it is greeted; raises as :meth:`_ask`."""
        return peer

    def write(self, batches: Sequence[EventBatch]) -> None:
        """See :class:`~..interfaces.Sink`."""
        calls = self._calls(batches)
        if not calls:
            return
        done, size = 0, 0
        try:
            line = self._connected()
            for call in calls:
                size = call.size
                status = self._ask(line, call.events, Deadline.after(self._clock, self._limits.request_timeout))
                if status.name != "OK":
                    raise SinkError(f"{self._name}: it has not taken them: {status.name}", batches[done:])
                done = call.done
                self._begun = (batches[done].sequence if call.part else None, call.part)
        except (OSError, ValueError) as error:
            self._counters.add(ConnectionFailedCount=1)
            self.close()
            if size > FRAME:
                raise OversizedError(self._name, size, error) from error
            raise SinkError(f"{self._name}: {error}", batches[done:]) from error

    def _calls(self, batches: Sequence[EventBatch]) -> Sequence[Call]:
        """What has to be said so that the receiver has these: none is more than it is to take at once."""
        calls, waiting, left = list[Call](), list[Any](), self.most_bytes
        for done, batch in enumerate(batches):
            bodies, begun = batch.bodies(), self._acknowledged_of(batch)
            events = enumerate(zip(self._events(batch, bodies), bodies, strict=True))
            for part, (event, body) in islice(events, begun, None):
                size = self._size(event, body)
                left -= size
                if waiting and (left < 0 or len(waiting) == self.most_events):
                    calls.append(Call(waiting, done, part, self.most_bytes - left - size))
                    waiting, left = [], self.most_bytes - size
                waiting.append(event)
        return [*calls, Call(waiting, len(batches), 0, self.most_bytes - left)] if waiting else calls

    def _acknowledged_of(self, batch: EventBatch) -> int:
        """So many of its first events the receiver has, from a delivery that failed behind them.

        Without this a receiver whose channel is smaller than a batch would get its beginning again and again.
        """
        number, part = self._begun
        return part if batch.sequence is not None and batch.sequence == number else 0

    def give_up(self, deadline: Deadline) -> None:
        """See :class:`~..interfaces.Sink`."""
        self._end, peer = deadline, self._peer
        if peer is not None:
            peer.hurry(deadline)

    def close(self) -> None:
        """See :class:`~..interfaces.Sink`."""
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()
            self._counters.add(ConnectionClosedCount=1)

    def _next_number(self) -> int:
        self._number = (self._number + 1) % (1 << 31)
        return self._number

    def _connected(self) -> Any:
        """A line to the receiver."""
        now = self._clock.monotonic()
        old = 0 < self._reset <= now - self._since
        if self._peer is not None and (old or self._peer.is_gone()):
            self.close()
        if self._peer is None:
            timeout = self._limits.connect_timeout
            self._peer = Peer(self._address, timeout, self._tls.context(), self._clock)
            self._peer.hurry(self._end)
            deadline = Deadline.after(self._clock, timeout)
            self._peer.shake(deadline)
            self._line = self._line_to(self._peer, deadline)
            self._since = now
            self._counters.add(ConnectionCreatedCount=1)
        return self._line


def exactly(peer: Any, size: int, deadline: Deadline) -> bytes:
    """So many bytes of a :class:`.Peer`, or of what unpacks what it says."""
    data = b""
    while len(data) < size:
        more = peer.receive(deadline, size - len(data))
        if not more:
            raise ConnectionError("it ended what it packs before it had acknowledged")
        data += more
    return data
