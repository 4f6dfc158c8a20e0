"""Flume's Thrift protocol: calls of ``ThriftSourceProtocol``, and their answers, in frames.

::

    struct ThriftFlumeEvent { 1: required map<string, string> headers, 2: required binary body }
    enum Status { OK, FAILED, ERROR, UNKNOWN }
    service ThriftSourceProtocol {
      Status append(1: ThriftFlumeEvent event)
      Status appendBatch(1: list<ThriftFlumeEvent> events)
    }

A frame is its size, 32 bits, and a call or an answer in Thrift's compact or binary protocol; the first byte says
which. The classes are written by hand for Apache's ``thrift`` package, whose compiled part encodes and decodes them.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from thrift.protocol.TBase import TBase
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TApplicationException, TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer, TTransportException

from .calls import BadCallError, valid_headers
from .reckoning import Reckoning

_SIZE = struct.Struct(">I")
HEADER_BYTES = _SIZE.size
#: Maximum items of a list, and headers of an event: their memory is allocated before they arrive.
_MOST_ITEMS, _MOST_HEADERS = 1 << 17, 1 << 14
#: Bytes of an event's objects besides its body, and of a header.
_OF_EVENT, _OF_HEADER = 300, 200
_COMPACT, _BINARY = 0x82, 0x80
_KINDS = {"compact": TCompactProtocolAccelerated, "binary": TBinaryProtocolAccelerated}


class Status(enum.IntEnum):
    """Status of a call."""

    OK = 0
    FAILED = 1
    ERROR = 2
    UNKNOWN = 3


class ThriftFlumeEvent(TBase):
    """An event."""

    __slots__ = ("body", "headers")
    thrift_spec = (
        None,
        (1, TType.MAP, "headers", (TType.STRING, "UTF8", TType.STRING, "UTF8", False), None),
        (2, TType.STRING, "body", "BINARY", None),
    )

    def __init__(self, headers: Mapping[str, str] | None = None, body: bytes | None = None) -> None:
        self.headers, self.body = headers, body


class _AppendBatch(TBase):
    __slots__ = ("events",)
    _of = (TType.STRUCT, [ThriftFlumeEvent, ThriftFlumeEvent.thrift_spec], False)
    thrift_spec = (None, (1, TType.LIST, "events", _of, None))

    def __init__(self, events: Sequence[ThriftFlumeEvent] | None = None) -> None:
        self.events = events


class _Result(TBase):
    __slots__ = ("success",)
    thrift_spec = ((0, TType.I32, "success", None, None),)

    def __init__(self, success: int | None = None) -> None:
        self.success = success


class Call(NamedTuple):
    """A call of a peer.

    :ivar events: the events to put; None for a message unknown to Flume's protocol.
    """

    kind: str
    name: str
    number: int
    events: Sequence[tuple[dict[str, str], bytes]] | None


def size_of(header: bytes) -> int:
    """Return the bytes of the frame after the header."""
    (size,) = _SIZE.unpack(header)
    return int(size)


def read_call(frame: bytes, reckoning: Reckoning) -> Call:
    """Parse a call; its events are made one at a time.

    :param reckoning: counts the memory of each event.
    :raises BadCallError: the frame is invalid.
    """
    kind = {_COMPACT: "compact", _BINARY: "binary"}.get(frame[0] if frame else 0)
    if kind is None:
        raise BadCallError("it is neither Thrift's compact nor its binary protocol")
    protocol = _protocol(kind, frame)
    try:
        name, _, number = protocol.readMessageBegin()
        if name not in ("append", "appendBatch"):
            return Call(kind, name, number, None)
        return Call(kind, name, number, _events(protocol, _count(protocol, name), reckoning))
    except AttributeError as error:
        raise BadCallError("an event lacks its headers or its body") from error
    except _FAILURES as error:
        raise BadCallError(f"invalid Thrift call: {error}") from error


def _count(protocol: Any, name: str) -> int:
    """Return the number of events in a call, and move the protocol before the first one."""
    protocol.readStructBegin()
    _, kind, _ = protocol.readFieldBegin()
    count = 1 if name == "append" else 0
    if name != "append" and kind == TType.LIST:
        kind, count = protocol.readListBegin()
    elif name != "append":
        kind = TType.STOP
    if kind != TType.STRUCT:
        raise BadCallError("invalid Thrift call: an event lacks its headers or its body")
    return int(count)


def _events(protocol: Any, count: int, reckoning: Reckoning) -> list[tuple[dict[str, str], bytes]]:
    decode, fields = protocol._fast_decode, [ThriftFlumeEvent, ThriftFlumeEvent.thrift_spec]
    protocol.container_length_limit = _MOST_HEADERS
    found: list[tuple[dict[str, str], bytes]] = []
    for _ in range(count):
        event: Any = ThriftFlumeEvent.__new__(ThriftFlumeEvent)
        decode(event, protocol, fields)
        reckoning.need(_OF_EVENT + _OF_HEADER * len(event.headers) + len(event.body))
        found.append((event.headers, event.body))
    reckoning.settle()
    return found


def answer(call: Call, status: Status) -> bytes:
    """Return the frame that answers a call."""
    buffer = TMemoryBuffer()
    protocol = _KINDS[call.kind](buffer)
    if call.events is None:
        protocol.writeMessageBegin(call.name, TMessageType.EXCEPTION, call.number)
        TApplicationException(TApplicationException.UNKNOWN_METHOD, f"unknown message {call.name[:100]}").write(
            protocol
        )
    else:
        protocol.writeMessageBegin(call.name, TMessageType.REPLY, call.number)
        _Result(int(status)).write(protocol)
    protocol.writeMessageEnd()
    return _framed(buffer.getvalue())


def batch_call(kind: str, number: int, events: Sequence[tuple[Mapping[str, str], bytes]]) -> bytes:
    """Return the frame of a call of ``appendBatch``."""
    buffer = TMemoryBuffer()
    protocol = _KINDS[kind](buffer)
    protocol.writeMessageBegin("appendBatch", TMessageType.CALL, number)
    _AppendBatch(list(_structs(events))).write(protocol)
    protocol.writeMessageEnd()
    return _framed(buffer.getvalue())


def read_answer(kind: str, number: int, frame: bytes) -> Status:
    """Parse the answer to a call.

    :raises ValueError: the answer is invalid, or belongs to another call.
    """
    protocol = _protocol(kind, frame)
    try:
        _, message, given = protocol.readMessageBegin()
        if message == TMessageType.EXCEPTION:
            error = TApplicationException()
            error.read(protocol)
            raise ValueError(f"the receiver answered with an error: {error.message}")
        result = _Result()
        result.read(protocol)
    except _FAILURES as error:
        raise ValueError(f"the receiver does not speak Thrift: {error}") from error
    if message != TMessageType.REPLY or given != number or result.success is None:
        raise ValueError("the answer belongs to another call")
    return Status(result.success) if result.success in list(Status) else Status.UNKNOWN


_FAILURES = (
    EOFError,
    IndexError,
    MemoryError,
    OverflowError,
    RecursionError,
    TProtocolException,
    TTransportException,
    TypeError,
    UnicodeDecodeError,
    struct.error,
)


def _protocol(kind: str, frame: bytes) -> Any:
    limits = {"string_length_limit": len(frame), "container_length_limit": min(_MOST_ITEMS, len(frame))}
    return _KINDS[kind](TMemoryBuffer(frame), **limits)


def _framed(message: bytes) -> bytes:
    return _SIZE.pack(len(message)) + message


def _structs(events: Iterable[tuple[Mapping[str, str], bytes]]) -> Iterator[ThriftFlumeEvent]:
    """Yield events as structs; headers that are one object for many events are checked once."""
    seen: Mapping[str, str] | None = None
    valid: dict[str, str] = {}
    for headers, body in events:
        if headers is not seen:
            seen, valid = headers, valid_headers(headers)
        yield ThriftFlumeEvent(valid, body)
