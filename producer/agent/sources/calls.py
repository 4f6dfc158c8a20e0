"""What the sources of calls share: one call after the other on a connection, each a batch, and its status."""

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
from .listening import Connection, TcpOptions
from .tcp_source import TcpSource

_PIECE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions(TcpOptions):
    """Where to listen, and bounds."""

    port: int = option(least=0, most=65535, doc="to listen on; 0 for any free one")
    max_frame: int = option(16 << 20, least=1024, doc="bytes of a call")
    max_memory: int = option(128 << 20, least=1024, doc="bytes of all calls together")
    frame_timeout: float = option(60.0, least=0.001, doc="seconds that a call may take to come")
    put_timeout: float | None = option(
        None, least=0, doc="seconds to wait for room in a channel; empty for the channels' keep_alive"
    )

    def holds(self) -> int:
        """Bytes at most."""
        return self.max_memory


class Stream(Protocol):
    """A connection, or what unpacks and packs what it brings and takes; see :class:`.listening.Connection`."""

    @property
    def peer(self) -> str:
        """Its address."""

    def read(self, size: int = ..., until: float | None = None) -> bytes:
        """What has come."""

    def send(self, data: bytes) -> None:
        """Send all of it."""


class Incoming:
    """The call that comes on a connection.

    :param budget: of all connections.
    """

    def __init__(self, stream: Stream, options: CallOptions, budget: Budget) -> None:
        self._stream, self._options = stream, options
        self._held = Holding(budget, stream.peer)
        self._first, self._until, self._expected = b"", 0.0, 0

    def begins(self) -> bool:
        """Wait for it; whether it comes."""
        self._first = self._stream.read(1)
        self._until = time.monotonic() + self._options.frame_timeout
        return bool(self._first)

    def expect(self, size: int) -> None:
        """It says that so many bytes more will come.

        :raises BadCallError: it is too large.
        """
        self._expected += size
        if self._expected > self._options.max_frame:
            most = self._options.max_frame
            raise BadCallError(f"a call of {self._expected} bytes is too much: max_frame is {most}")

    def hold(self, size: int) -> None:
        """So many bytes more are ours until it is over.

        :raises BadCallError: there are too many, of all calls or of those of its address.
        """
        if not self._held.take(size):
            raise BadCallError(f"there is no memory for its call now: max_memory is {self._options.max_memory}")

    def hold_made(self, size: int) -> None:
        """So many bytes more are made of it.

        :raises BadCallError: there are too many, of all calls; or ever, of this one.
        """
        if not self._held.take(size, within_share=False):
            raise BadCallError(f"its events take more memory than there is: max_memory is {self._options.max_memory}")

    def exactly(self, size: int) -> bytes:
        """So many bytes.

        :raises OSError: they do not come.
        :raises BadCallError: there is no memory for them now.
        """
        found = bytearray(self._first if size else b"")  # not a list: a peer may send byte by byte
        self._first = self._first[len(found) :]
        while len(found) < size:
            data = self._stream.read(min(size - len(found), _PIECE), self._until)
            if not data:
                raise ConnectionError("it went away within a call")
            self.hold(len(data))
            found += data
        return bytes(found)

    def release(self) -> None:
        """It is over."""
        self._held.keep(0)
        self._expected = 0


class Conversation(ABC):
    """A protocol, on one connection."""

    @abstractmethod
    def receive(self, incoming: Incoming) -> Any:
        """The frame of a call."""

    @abstractmethod
    def read(self, frame: Any, reckoning: Reckoning) -> Any:
        """The call in a frame; its ``events`` are to be put, and None if it brings none.

        :param reckoning: is told of what events become, as they are made.
        :raises BadCallError: it is none.
        """

    @abstractmethod
    def answer(self, call: Any, *, taken: bool) -> bytes:
        """The frame that answers a call."""


class CallSource(TcpSource):
    """See the module."""

    def __init__(self, options: CallOptions, context: Context) -> None:
        super().__init__(options, [options.port], context)
        self._options, self._counters = options, context.counters
        self._budget = Budget(options.max_memory, options.max_frame)

    @abstractmethod
    def _conversation(self) -> Conversation:
        """With a new peer."""

    def _stream(self, connection: Connection) -> Stream:
        """What calls come on."""
        return connection

    def _serve(self, connection: Connection) -> None:
        stream, conversation = self._stream(connection), self._conversation()
        incoming = Incoming(stream, self._options, self._budget)
        try:
            while not self._stop.is_set() and incoming.begins():
                self._handle(stream, conversation, incoming)
        except BadCallError as error:
            self._counters.add(EventReadFail=1)
            self.server.tell(connection.peer, error)

    def _handle(self, stream: Stream, conversation: Conversation, incoming: Incoming) -> None:
        try:
            batches, answers = _read(conversation, incoming)
            stream.send(answers[self._put(stream.peer, batches)])
        finally:
            incoming.release()

    def _put(self, peer: str, batches: Sequence[EventBatch]) -> bool:
        try:
            for batch in batches:
                # No answer of these protocols has a sender give up: events that no channel takes are dropped here.
                self._intake.put(self._outlet, batch, self._options.put_timeout, peer, refuse=False)
        except NotTakenError:
            return False
        return True


def _read(conversation: Conversation, incoming: Incoming) -> tuple[list[EventBatch], Mapping[bool, bytes]]:
    """The events of a call, and the answers to it: if they are taken, and if not.

    Nothing else is kept of it while a channel is waited for: as objects its events are many times as large.
    """
    frame = conversation.receive(incoming)
    with one_at_a_time:
        call = conversation.read(frame, Reckoning(incoming.hold_made))
        batches = list(batches_of(call.events or ()))
    return batches, {taken: conversation.answer(call, taken=taken) for taken in (True, False)}
