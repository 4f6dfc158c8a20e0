"""CallSink: the common part of sinks that send calls to one receiver, and get a status for each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Any, NamedTuple

from ...model.options import option
from ...runtime.clock import Deadline
from ..config.flume_keys import without_needless
from ..events.batch import EventBatch
from ..events.interfaces import Context, SinkError
from .peers import PeerOptions, PeerSink

_FLUMES_BATCH = "100"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSinkOptions(PeerOptions):
    """The receiver, and limits of a call."""

    hostname: str = option(doc="host of the receiver")
    port: int = option(least=1, most=65535, doc="port of the receiver")
    batch_size: int = option(10_000, flume="batch-size", least=1, doc="maximum number of events in a call")
    most_bytes: int = option(4 << 20, least=1, doc="maximum bytes of a call; Flume accepts frames of up to 16 MB")
    connect_timeout: float = option(20.0, flume="connect-timeout", scale=0.001, least=0.001, doc="seconds to connect")
    request_timeout: float = option(
        20.0, flume="request-timeout", scale=0.001, least=0.001, doc="seconds for the answer to a call"
    )


def flumes_keys(texts: Mapping[str, str], needless: Sequence[str]) -> dict[str, str]:
    """Translate the options of a Flume file, with Flume's batch size.

    The receiver is often a Flume, whose channels may refuse larger batches.
    """
    found = {"batch-size": _FLUMES_BATCH, **without_needless(texts, needless)}
    if "ssl" in found:
        found["tls"] = found.pop("ssl")
        trusting = found.pop("trust-all-certs", "false").lower() == "true"
        found |= {"verify": "false"} if trusting else {}
    return found


class Call(NamedTuple):
    """One call to the receiver.

    :ivar events: the events, as :meth:`CallSink._events` returns them.
    :ivar done: the number of batches of the delivery that are complete after it.
    :ivar part: the number of events of the next batch that it includes.
    :ivar size: bytes with headers; more than ``most_bytes`` only for a single event.
    """

    events: Sequence[Any]
    done: int
    part: int
    size: int


class CallSink(PeerSink, ABC):
    """Sink that sends calls to one receiver.

    :param reset: seconds after which to reconnect; 0 for never.
    """

    def __init__(self, options: CallSinkOptions, context: Context, reset: float) -> None:
        super().__init__(options, context, (options.hostname, options.port), options.connect_timeout, reset)
        self._timeout = options.request_timeout
        self.most_events, self.most_bytes = options.batch_size, options.most_bytes
        # The number of a batch that the receiver has acknowledged in part, and the number of these events.
        self._begun: tuple[int | None, int] = (None, 0)
        self._number = 0

    @abstractmethod
    def _events(self, batch: EventBatch, bodies: Sequence[bytes]) -> Iterable[Any]:
        """Return the encoded events of a batch.

        :param bodies: the bodies of the batch.
        """

    @abstractmethod
    def _size(self, event: Any, body: bytes) -> int:
        """Return the bytes of an event with its headers."""

    @abstractmethod
    def _ask(self, line: Any, events: Sequence[Any], deadline: Deadline) -> IntEnum:
        """Send events in one call; return the status.

        :param line: the result of :meth:`_line_to`.
        :raises OSError: the connection failed, or the answer is late.
        :raises ValueError: the answer is invalid.
        """

    def write(self, batches: Sequence[EventBatch]) -> None:
        calls = self._calls(batches)
        if not calls:
            return
        done, size = 0, 0
        try:
            line = self._connected()
            for call in calls:
                size = call.size
                status = self._ask(line, call.events, Deadline.after(self._clock, self._timeout))
                if status.name != "OK":
                    raise SinkError(f"{self._name}: the receiver answered {status.name}", batches[done:])
                done = call.done
                self._begun = (batches[done].sequence if call.part else None, call.part)
        except (OSError, ValueError) as error:
            raise self._failed(error, size, batches[done:]) from error

    def _calls(self, batches: Sequence[EventBatch]) -> Sequence[Call]:
        """Divide the events that the receiver lacks into calls within the limits."""
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
        """Return the number of a batch's first events that the receiver acknowledged before a failure.

        Without this, a receiver whose channel is smaller than the batch would get its beginning again and again.
        """
        number, part = self._begun
        return part if batch.sequence is not None and batch.sequence == number else 0

    def _next_number(self) -> int:
        self._number = (self._number + 1) % (1 << 31)
        return self._number


def exactly(peer: Any, size: int, deadline: Deadline) -> bytes:
    """Read exactly ``size`` bytes from a :class:`.Peer`, or from its decompressor."""
    data = b""
    while len(data) < size:
        more = peer.receive(deadline, size - len(data))
        if not more:
            raise ConnectionError("the receiver ended its compressed stream before it acknowledged")
        data += more
    return data
