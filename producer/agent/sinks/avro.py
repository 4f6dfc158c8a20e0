"""Sends events to Flume's Avro source, or to the source ``avro`` of an agent. Source: Flume's ``AvroSink``.

A delivery is calls of ``appendBatch``, of ``batch_size`` events each, and ``OK`` says that the receiver's channels have
committed one. If one fails, or its answer does not come within ``request_timeout``, the next delivery goes on with it:
its events may then be there twice. After a restart, or by another sink of a group, the batch that was begun is sent
again whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...model.options import option
from ...runtime.clock import Deadline
from ..events.batch import EventBatch
from ..events.interfaces import Context
from ..protocols import avro
from ..protocols.avro_encoding import events_of
from ..protocols.calls import Deflater, Inflated, check_one_layer
from .calls import CallSink, CallSinkOptions, exactly, flumes_keys
from .peers import Peer

#: Bytes and buffers.
_MOST_ANSWER, _MOST_BUFFERS = 1 << 20, 1 << 10
_NEEDLESS = ("maxIoWorkers", "client.type")


class AvroSink(CallSink):
    """See the module."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(CallSinkOptions):
        """Flume's ``avro``'s."""

        compression_type: str = option(
            "none", flume="compression-type", doc="of the whole connection", choices=("none", "deflate")
        )
        compression_level: int = option(6, flume="compression-level", least=0, most=9, doc="of deflate")
        reset_connection_interval: float = option(
            0.0, flume="reset-connection-interval", least=0, doc="seconds after which to connect anew; 0 for never"
        )

        def __post_init__(self) -> None:
            CallSinkOptions.__post_init__(self)
            check_one_layer(self.compression_type, tls=self.tls)

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """Of how its client works nothing is left to choose."""
            return flumes_keys(texts, _NEEDLESS)

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__(options, context, options.reset_connection_interval)
        self._level = options.compression_level if options.compression_type == "deflate" else None

    def _events(self, batch: EventBatch, bodies: Sequence[bytes]) -> Sequence[bytes]:
        return events_of(batch, bodies)

    def _size(self, event: bytes, body: bytes) -> int:
        return len(event)

    def _line_to(self, peer: Peer, deadline: Deadline) -> _Line:
        line = _Line(peer, self._level)
        match, server = avro.read_greeting(self._said(line, avro.greeting_call(), deadline))
        if match is avro.Match.NONE:
            match, _ = avro.read_greeting(self._said(line, avro.greeting_call(server, explicit=True), deadline))
        if match is avro.Match.NONE:
            raise ValueError("it does not know Flume's protocol")
        return line

    def _ask(self, line: _Line, events: Sequence[bytes], deadline: Deadline) -> avro.Status:
        return avro.read_answer(self._said(line, avro.batch_call(events), deadline))

    def _said(self, line: _Line, message: bytes, deadline: Deadline) -> bytes:
        """What is answered."""
        number = self._next_number()
        line.send(avro.framed(number, message), deadline)
        given, answer = _frame(line, deadline)
        if given != number:
            raise ValueError("it answered something else")
        return answer


class _Line:
    """A peer, and what packs and unpacks what is said to it and by it.

    :param level: of deflate; None for none.
    """

    def __init__(self, peer: Peer, level: int | None) -> None:
        self._peer = peer
        self._deflater = None if level is None else Deflater(level)
        self._inflated = None if level is None else Inflated()

    def send(self, data: bytes, deadline: Deadline) -> None:
        self._peer.send(data if self._deflater is None else self._deflater.pack(data), deadline)

    def receive(self, deadline: Deadline, most: int) -> bytes:
        if self._inflated is None:
            return self._peer.receive(deadline, most)
        return self._inflated.read(most, lambda size: self._peer.receive(deadline, size))


def _frame(line: _Line, deadline: Deadline) -> tuple[int, bytes]:
    """The number and the message of the next frame."""
    number, count = avro.header_of(exactly(line, avro.HEADER_BYTES, deadline))
    if count > _MOST_BUFFERS:
        raise ValueError(f"it does not speak this protocol: an answer of {count} parts")
    parts, left = [], _MOST_ANSWER
    for _ in range(count):
        size = avro.size_of(exactly(line, avro.SIZE_BYTES, deadline))
        left -= size
        if left < 0:
            raise ValueError(f"it does not speak this protocol: an answer of {_MOST_ANSWER - left} bytes")
        parts.append(exactly(line, size, deadline))
    return number, b"".join(parts)
