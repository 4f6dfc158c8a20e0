"""Events of Flume's Avro sinks and clients, over TCP, with TLS or without. Modelled on Flume's ``AvroSource``.

A call is one batch. ``OK`` means that every required channel has committed it. While a channel is full the answer is
``FAILED``, and the client tries again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ...model.options import option
from ..config.flume_keys import without_needless
from ..protocols import avro
from ..protocols.calls import Deflater, Inflated, check_one_layer
from ..protocols.reckoning import Reckoning
from .calls import CallOptions, CallSource, Conversation, Incoming, Stream
from .listening import Connection

#: Bytes reserved for each buffer of a frame, besides its content.
_OF_BUFFER = 64
_NEEDLESS = ("threads", "maxIoWorkers")


class AvroSource(CallSource):
    """Source of events from Flume's Avro sinks and clients. Modelled on Flume's ``AvroSource``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(CallOptions):
        """Options of Flume's ``avro``, and limits."""

        compression_type: str = option(
            "none", flume="compression-type", doc="compression of the whole connection", choices=("none", "deflate")
        )

        def __post_init__(self) -> None:
            CallOptions.__post_init__(self)
            check_one_layer(self.compression_type, tls=self.certificate is not None)

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """Drop options without effect: threads, and rules for addresses while the filter is off."""
            found = without_needless(texts, _NEEDLESS)
            if found.get("ipFilter", "false").lower() == "false":
                found = {name: value for name, value in found.items() if name not in ("ipFilter", "ipFilterRules")}
            return found

    _options: Options

    def _conversation(self) -> Conversation:
        return _AvroConversation()

    def _stream(self, connection: Connection) -> Stream:
        return connection if self._options.compression_type == "none" else _Deflated(connection)


class _Frame(NamedTuple):
    number: int
    message: bytes


class _Call(NamedTuple):
    number: int
    call: avro.Call

    @property
    def events(self) -> object:
        return self.call.events


class _AvroConversation(Conversation):
    def __init__(self) -> None:
        self._avro = avro.Conversation()

    def receive(self, incoming: Incoming) -> _Frame:
        number, count = avro.header_of(incoming.exactly(avro.HEADER_BYTES))
        incoming.expect(count * _OF_BUFFER)
        buffers = []
        for _ in range(count):
            incoming.hold(_OF_BUFFER)
            size = avro.size_of(incoming.exactly(avro.SIZE_BYTES))
            incoming.expect(size)
            buffers.append(incoming.exactly(size))
        return _Frame(number, b"".join(buffers))

    def read(self, frame: _Frame, reckoning: Reckoning) -> _Call:
        return _Call(frame.number, self._avro.read(frame.message, reckoning))

    def answer(self, call: _Call, *, taken: bool) -> bytes:
        return avro.framed(call.number, avro.answer(call.call, avro.Status.OK if taken else avro.Status.FAILED))


class _Deflated:
    """A connection that is compressed in both directions."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._inflated, self._deflater = connection, Inflated(), Deflater()
        self.peer = connection.peer

    def read(self, size: int = 1, until: float | None = None) -> bytes:
        return self._inflated.read(size, lambda most: self._connection.read(most, until))

    def send(self, data: bytes) -> None:
        self._connection.send(self._deflater.pack(data))
