"""Flume's Avro protocol: calls of ``AvroSourceProtocol`` and their answers, in Avro's RPC over Netty.

A frame has a number, which the answer repeats, and the count of its buffers, each with its size; all are 32 bits. The
joined buffers are, in Avro's encoding, a request or an answer. A request has metadata, the message's name and its
arguments. An answer has metadata, an error flag, and the status or the error's text. The first request and answer on a
connection begin with a handshake, in which each side sends the MD5 of its protocol's text. A side that does not know
the other's text asks for it. A request without a name is only a handshake.
"""

from __future__ import annotations

import enum
import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .avro_encoding import Reader, array, long, text
from .calls import BadCallError
from .reckoning import Reckoning

_HEADER, _SIZE = struct.Struct(">II"), struct.Struct(">I")
HEADER_BYTES, SIZE_BYTES = _HEADER.size, _SIZE.size
_HASH = 16
_MOST_METADATA = 1000
_NULL = b"\0"

_STATUS = {"type": "enum", "name": "Status", "symbols": ["OK", "FAILED", "UNKNOWN"]}
_EVENT = {
    "type": "record",
    "name": "AvroFlumeEvent",
    "fields": [{"name": "headers", "type": {"type": "map", "values": "string"}}, {"name": "body", "type": "bytes"}],
}
_GIVEN: dict[str, Any] = {"append": "AvroFlumeEvent", "appendBatch": {"type": "array", "items": "AvroFlumeEvent"}}
_TYPES: Mapping[str, Any] = {"Status": _STATUS, "AvroFlumeEvent": _EVENT}
#: Flume's protocol without comments.
PROTOCOL = json.dumps(
    {
        "protocol": "AvroSourceProtocol",
        "namespace": "org.apache.flume.source.avro",
        "types": list(_TYPES.values()),
        "messages": {
            name: {"request": [{"name": f"event{'s' * (name != 'append')}", "type": given}], "response": "Status"}
            for name, given in _GIVEN.items()
        },
    }
)
OUR_HASH = hashlib.md5(PROTOCOL.encode(), usedforsecurity=False).digest()
#: Hash of Flume's own text, with comments.
FLUME_HASH = bytes.fromhex("86aadae2c45474c0fe93ffd0f2350a65")


class Status(enum.IntEnum):
    """Status of a call."""

    OK = 0
    FAILED = 1
    UNKNOWN = 2


class Match(enum.IntEnum):
    """Result of a handshake: both hashes are known, only the client's hash is known, or neither is."""

    BOTH = 0
    CLIENT = 1
    NONE = 2


class Call(NamedTuple):
    """A call of a peer.

    :ivar greeting: the answer to the handshake before it.
    :ivar name: the name of the message; None for only a handshake.
    :ivar events: the events to put; None for a message unknown to Flume's protocol.
    """

    greeting: bytes
    name: str | None
    events: Sequence[tuple[dict[str, str], bytes]] | None


class Conversation:
    """The calls and answers on one connection."""

    def __init__(self) -> None:
        self._agreed = False

    def read(self, message: bytes, reckoning: Reckoning) -> Call:
        """Parse a call.

        :param reckoning: counts the memory of its events.
        :raises BadCallError: the message is not a valid call.
        """
        reader = Reader(message, reckoning)
        try:
            greeting = b"" if self._agreed else self._greeting(reader)
            return self._call(greeting, reader) if self._agreed else Call(greeting, None, None)
        except IndexError as error:
            raise BadCallError("invalid Avro call: it ends within a value") from error
        except BadCallError as error:
            raise BadCallError(f"invalid Avro call: {error}") from error

    def _greeting(self, reader: Reader) -> bytes:
        client, given, server = reader.fixed(_HASH), reader.optional(reader.text), reader.fixed(_HASH)
        reader.optional(lambda: _pass_metadata(reader))
        if given is not None:
            check_protocol(given)
        self._agreed = given is not None or client in (FLUME_HASH, OUR_HASH)
        if not self._agreed:
            return _greeting(Match.NONE)
        return _greeting(Match.BOTH if server in (FLUME_HASH, OUR_HASH) else Match.CLIENT)

    @staticmethod
    def _call(greeting: bytes, reader: Reader) -> Call:
        _pass_metadata(reader)
        name = reader.text()
        if name == "append":
            return Call(greeting, name, [reader.event()])
        return Call(greeting, name or None, reader.events() if name == "appendBatch" else None)


def answer(call: Call, status: Status) -> bytes:
    """Return the answer to a call."""
    if call.name is None:
        return call.greeting
    if call.events is None:
        return call.greeting + _NULL + b"\1" + long(0) + text(f"unknown message {call.name[:100]}")
    return call.greeting + _NULL + b"\0" + long(status)


def framed(number: int, message: bytes) -> bytes:
    """Return a frame of one buffer."""
    return _HEADER.pack(number, 1) + _SIZE.pack(len(message)) + message


def header_of(data: bytes) -> tuple[int, int]:
    """Return the number of a frame, and the count of its buffers."""
    number, count = _HEADER.unpack(data)
    return number, count


def size_of(data: bytes) -> int:
    """Return the size of the next buffer."""
    (size,) = _SIZE.unpack(data)
    return int(size)


def greeting_call(server: bytes = FLUME_HASH, *, explicit: bool = False) -> bytes:
    """Return a request that is only a handshake.

    :param server: the receiver's hash, if it is known.
    :param explicit: True to send the text of the protocol, for a receiver with another hash than Flume's.
    """
    given = OUR_HASH + long(1) + text(PROTOCOL) if explicit else FLUME_HASH + _NULL
    return given + server + _NULL + _NULL + text("")


def read_greeting(message: bytes) -> tuple[Match, bytes]:
    """Parse the answer to a handshake; return the result, and the receiver's hash.

    :raises BadCallError: the answer is invalid, or the protocol is not Flume's.
    """
    reader = Reader(message)
    try:
        match, given = Match(reader.long()), reader.optional(reader.text)
        server = reader.optional(lambda: reader.fixed(_HASH))
    except (IndexError, ValueError) as error:
        raise BadCallError(f"the receiver does not speak Avro: {error}") from error
    if given is not None:
        check_protocol(given)
    return match, server or FLUME_HASH


def batch_call(events: Sequence[bytes]) -> bytes:
    """Return a call of ``appendBatch`` with encoded events."""
    return b"".join((_NULL, text("appendBatch"), array(events)))


def read_answer(message: bytes) -> Status:
    """Parse the answer to a call.

    :raises BadCallError: the answer is invalid, or reports an error.
    """
    reader = Reader(message)
    try:
        _pass_metadata(reader)
        if not reader.flag():
            return Status(reader.long())
        reader.long()
        said = reader.text()[:1000]
    except (IndexError, ValueError) as error:
        raise BadCallError(f"the receiver does not speak Avro: {error}") from error
    raise BadCallError(f"the receiver answered with an error: {said}")


def check_protocol(given: str) -> None:
    """Check that a text is that of Flume's protocol, with any comments.

    :raises BadCallError: the text is another protocol.
    """
    try:
        protocol = json.loads(given)
        types = {_last(each["name"]): each for each in protocol["types"]}
        messages = {name: protocol["messages"][name] for name in _GIVEN if name in protocol["messages"]}
        fits = messages and all(_fits(message, _GIVEN[name], types) for name, message in messages.items())
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
        raise BadCallError("its protocol cannot be read") from error
    if not fits:
        raise BadCallError("its protocol is not Flume's")


def _fits(message: Mapping[str, Any], wanted: Any, types: Mapping[str, Any]) -> bool:
    (given,) = message["request"]
    return _is(given["type"], wanted, types) and _is(message["response"], "Status", types)


def _is(given: Any, wanted: Any, types: Mapping[str, Any]) -> bool:
    """Return True if a type is the wanted one; it is compared as deep as the wanted type goes."""
    wanted = _TYPES.get(wanted, wanted) if isinstance(wanted, str) else wanted
    given = _plain(given, types)
    if isinstance(wanted, str):
        return bool((given["type"] if isinstance(given, Mapping) else given) == wanted)
    if not isinstance(given, Mapping) or given["type"] != wanted["type"]:
        return False
    if wanted["type"] == "enum":
        return bool(given["symbols"] == wanted["symbols"])
    if wanted["type"] == "record":
        fields = [(each["name"], each["type"]) for each in given["fields"]]
        return [name for name, _ in fields] == [each["name"] for each in wanted["fields"]] and all(
            _is(one, other["type"], types) for (_, one), other in zip(fields, wanted["fields"], strict=True)
        )
    inner = {"array": "items", "map": "values"}[wanted["type"]]
    return _is(given[inner], wanted[inner], types)


def _plain(given: Any, types: Mapping[str, Any]) -> Any:
    """Return the definition of a type given by name, or the type itself."""
    return types.get(_last(given), given) if isinstance(given, str) else given


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _greeting(match: Match) -> bytes:
    if match is Match.BOTH:
        return long(match) + _NULL + _NULL + _NULL
    return long(match) + long(1) + text(PROTOCOL) + long(1) + OUR_HASH + _NULL


def _pass_metadata(reader: Reader) -> None:
    for _ in reader.items(_MOST_METADATA):
        reader.text()
        reader.data()
