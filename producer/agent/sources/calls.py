"""CallSource: the common part of sources that receive one call after another on a connection."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...model.options import option
from ..events.batch import EventBatch, batches_of
from ..events.interfaces import Context
from ..protocols.calls import BadCallError
from ..protocols.reckoning import Reckoning
from .budget import Budget, Holding
from .http_requests import one_at_a_time
from .intake import NotTakenError
from .listening import Connection, TcpOptions, TcpSource

_PIECE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions(TcpOptions):
    """Address and limits of a source of calls."""

    port: int = option(least=0, most=65535, doc="port to listen on; 0 for any free one")
    max_frame: int = option(16 << 20, least=1024, doc="maximum bytes of a call")
    max_memory: int = option(128 << 20, least=1024, doc="maximum bytes of all calls together")
    frame_timeout: float = option(60.0, least=0.001, doc="seconds for a call to arrive")
    put_timeout: float | None = option(
        None, least=0, doc="seconds to wait for room in a channel; empty for the channels' keep_alive"
    )

    def holds(self) -> int:
        """Return the maximum bytes that the source holds."""
        return self.max_memory


class Stream(Protocol):
    """A connection, or a wrapper that compresses it; :class:`.listening.Connection` describes the methods."""

    @property
    def peer(self) -> str:
        """The peer's address."""

    def read(self, size: int = ..., until: float | None = None) -> bytes:
        """Return the bytes that have arrived."""

    def send(self, data: bytes) -> None:
        """Send all bytes."""


class Incoming:
    """The call that arrives on a connection.

    :param budget: the budget of all connections.
    """

    def __init__(self, stream: Stream, options: CallOptions, budget: Budget) -> None:
        self._stream, self._options = stream, options
        self._held = Holding(budget, stream.peer)
        self._first, self._until, self._expected = b"", 0.0, 0

    def begins(self) -> bool:
        """Wait for a call; return False at the end of the connection."""
        self._first = self._stream.read(1)
        self._until = time.monotonic() + self._options.frame_timeout
        return bool(self._first)

    def expect(self, size: int) -> None:
        """Check the announced size of the rest of the call.

        :raises BadCallError: the call is too large.
        """
        self._expected += size
        if self._expected > self._options.max_frame:
            most = self._options.max_frame
            raise BadCallError(f"a call of {self._expected} bytes exceeds max_frame ({most} bytes)")

    def hold(self, size: int) -> None:
        """Reserve bytes until the call is complete.

        :raises BadCallError: they are not free, in total or for this address.
        """
        if not self._held.take(size):
            raise BadCallError(f"no memory is free for its call: max_memory is {self._options.max_memory} bytes")

    def hold_objects(self, size: int) -> None:
        """Reserve bytes for the objects made of the call.

        :raises BadCallError: they are not free, or exceed the budget.
        """
        if not self._held.take(size, within_share=False):
            raise BadCallError(f"no memory is free for its events: max_memory is {self._options.max_memory} bytes")

    def exactly(self, size: int) -> bytes:
        """Read exactly ``size`` bytes.

        :raises OSError: the connection ended before, or took too long.
        :raises BadCallError: no memory is free for them.
        """
        found = bytearray(self._first if size else b"")  # not a list: a peer may send one byte at a time
        self._first = self._first[len(found) :]
        while len(found) < size:
            data = self._stream.read(min(size - len(found), _PIECE), self._until)
            if not data:
                raise ConnectionError("the peer closed the connection within a call")
            self.hold(len(data))
            found += data
        return bytes(found)

    def release(self) -> None:
        """Release the bytes of a call that is complete."""
        self._held.keep(0)
        self._expected = 0


class Conversation(ABC):
    """The protocol on one connection."""

    @abstractmethod
    def receive(self, incoming: Incoming) -> Any:
        """Read the frame of a call."""

    @abstractmethod
    def read(self, frame: Any, reckoning: Reckoning) -> Any:
        """Parse the call in a frame; its ``events`` are None if it has none.

        :param reckoning: counts the memory of events before they are made.
        :raises BadCallError: the frame is not a valid call.
        """

    @abstractmethod
    def answer(self, call: Any, *, taken: bool) -> bytes:
        """Return the frame that answers a call."""


class CallSource(TcpSource):
    """Source that puts the events of each call as one batch, and answers with the outcome."""

    def __init__(self, options: CallOptions, context: Context) -> None:
        super().__init__(options, [options.port], context)
        self._options, self._counters = options, context.counters
        self._budget = Budget(options.max_memory, options.max_frame)

    @abstractmethod
    def _conversation(self) -> Conversation:
        """Return the protocol's state for a new connection."""

    def _stream(self, connection: Connection) -> Stream:
        """Return the stream that calls are read from."""
        return connection

    def _serve(self, connection: Connection) -> None:
        stream, conversation = self._stream(connection), self._conversation()
        incoming = Incoming(stream, self._options, self._budget)
        try:
            while not self._stop.is_set() and incoming.begins():
                self._handle(stream, conversation, incoming)
        except BadCallError as error:
            self._counters.add(EventReadFail=1)
            self.log_fault(connection.peer, error)

    def _handle(self, stream: Stream, conversation: Conversation, incoming: Incoming) -> None:
        try:
            batches, answers = _read(conversation, incoming)
            stream.send(answers[self._put(stream.peer, batches)])
        finally:
            incoming.release()

    def _put(self, peer: str, batches: Sequence[EventBatch]) -> bool:
        try:
            for batch in batches:
                # No answer of these protocols makes a sender drop events: unfit ones are dropped here.
                self._intake.put(self._outlet, batch, self._options.put_timeout, peer, refuse=False)
        except NotTakenError:
            return False
        return True


def _read(conversation: Conversation, incoming: Incoming) -> tuple[list[EventBatch], Mapping[bool, bytes]]:
    """Read a call; return its batches, and its answers for a failed and a successful put.

    The call itself is not kept while a channel is full: as objects its events are many times as large.
    """
    frame = conversation.receive(incoming)
    with one_at_a_time:
        call = conversation.read(frame, Reckoning(incoming.hold_objects))
        batches = list(batches_of(call.events or ()))
    return batches, {taken: conversation.answer(call, taken=taken) for taken in (True, False)}
