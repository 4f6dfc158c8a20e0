"""Send events to Flume's Avro source, or to an agent's source ``avro``. Modelled on Flume's ``AvroSink``.

A delivery is sent in calls of ``appendBatch``, ``batch_size`` events each. ``OK`` means that the receiver's channels
have committed the call. If a call fails, or is not answered within ``request_timeout``, the next delivery continues
with it, so its events may be duplicated. After a restart, or in another sink of a group, the whole begun batch is sent
again.
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

#: Limits of an answer: bytes, and number of buffers.
_MOST_ANSWER, _MOST_BUFFERS = 1 << 20, 1 << 10
_NEEDLESS = ("maxIoWorkers", "client.type")


class AvroSink(CallSink):
    """Sink to Flume's Avro source, or an agent's source ``avro``. Modelled on Flume's ``AvroSink``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(CallSinkOptions):
        """Options of Flume's ``avro``."""

        compression_type: str = option(
            "none", flume="compression-type", doc="compression of the whole connection", choices=("none", "deflate")
        )
        compression_level: int = option(6, flume="compression-level", least=0, most=9, doc="level of deflate")
        reset_connection_interval: float = option(
            0.0, flume="reset-connection-interval", least=0, doc="seconds after which to reconnect; 0 for never"
        )

        def __post_init__(self) -> None:
            CallSinkOptions.__post_init__(self)
            check_one_layer(self.compression_type, tls=self.tls)

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """Drop options of Flume's client without effect."""
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
        match, server = avro.read_greeting(self._exchange(line, avro.greeting_call(), deadline))
        if match is avro.Match.NONE:
            match, _ = avro.read_greeting(self._exchange(line, avro.greeting_call(server, explicit=True), deadline))
        if match is avro.Match.NONE:
            raise ValueError("it does not support Flume's Avro protocol")
        return line

    def _ask(self, line: _Line, events: Sequence[bytes], deadline: Deadline) -> avro.Status:
        return avro.read_answer(self._exchange(line, avro.batch_call(events), deadline))

    def _exchange(self, line: _Line, message: bytes, deadline: Deadline) -> bytes:
        """Send a message, and return the answer."""
        number = self._next_number()
        line.send(avro.framed(number, message), deadline)
        given, answer = _frame(line, deadline)
        if given != number:
            raise ValueError("the answer belongs to another call")
        return answer


class _Line:
    """Connection to a peer, optionally compressed.

    :param level: the level of deflate; None for no compression.
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
    """Read the number and the message of the next frame."""
    number, count = avro.header_of(exactly(line, avro.HEADER_BYTES, deadline))
    if count > _MOST_BUFFERS:
        raise ValueError(f"the answer is not valid Avro: it has {count} parts")
    parts, left = [], _MOST_ANSWER
    for _ in range(count):
        size = avro.size_of(exactly(line, avro.SIZE_BYTES, deadline))
        left -= size
        if left < 0:
            raise ValueError(f"the answer is not valid Avro: it has {_MOST_ANSWER - left} bytes")
        parts.append(exactly(line, size, deadline))
    return number, b"".join(parts)
