"""Flume's Avro protocol: calls of ``AvroSourceProtocol`` and their answers, as Avro's RPC has them over Netty.

A frame is a number that the answer has, too, the count of its buffers, and each of these with its size, all of 32
bits. What the buffers hold together is, in Avro's encoding, a request (metadata, the message's name, what it is given)
or an answer (metadata, whether it is an error, the status or the error's text). Before the first of each on a
connection stands a handshake, in which both sides say by MD5 which text of the protocol they have; who does not know
the other's asks for it. A request without a name is a handshake only.
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
#: Flume's, without its comments.
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
#: Of the text that Flume has, with its comments.
FLUME_HASH = bytes.fromhex("86aadae2c45474c0fe93ffd0f2350a65")


class Status(enum.IntEnum):
    """An answer."""

    OK = 0
    FAILED = 1
    UNKNOWN = 2


class Match(enum.IntEnum):
    """What the receiver of a handshake knows: both hashes; the sender's, but is another; nothing of the sender's."""

    BOTH = 0
    CLIENT = 1
    NONE = 2


class Call(NamedTuple):
    """What a peer asks for.

    :ivar greeting: the answer to the handshake before it.
    :ivar name: of the message; None if there was a handshake only.
    :ivar events: to be put; None if it is nothing that Flume's protocol has.
    """

    greeting: bytes
    name: str | None
    events: Sequence[tuple[dict[str, str], bytes]] | None


class Conversation:
    """What comes on one connection, and its answers."""

    def __init__(self) -> None:
        self._agreed = False

    def read(self, message: bytes, reckoning: Reckoning) -> Call:
        """A call.

        :param reckoning: is told of its events.
        :raises BadCallError: it is none.
        """
        reader = Reader(message, reckoning)
        try:
            greeting = b"" if self._agreed else self._greeting(reader)
            return self._call(greeting, reader) if self._agreed else Call(greeting, None, None)
        except IndexError as error:
            raise BadCallError("it is no Avro call: it ends within a value") from error
        except BadCallError as error:
            raise BadCallError(f"it is no Avro call: {error}") from error

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
    """What is answered to a call."""
    if call.name is None:
        return call.greeting
    if call.events is None:
        return call.greeting + _NULL + b"\1" + long(0) + text(f"there is no {call.name[:100]}")
    return call.greeting + _NULL + b"\0" + long(status)


def framed(number: int, message: bytes) -> bytes:
    """A frame of one buffer."""
    return _HEADER.pack(number, 1) + _SIZE.pack(len(message)) + message


def header_of(data: bytes) -> tuple[int, int]:
    """The number of a frame, and the count of its buffers."""
    number, count = _HEADER.unpack(data)
    return number, count


def size_of(data: bytes) -> int:
    """Of the buffer that follows."""
    (size,) = _SIZE.unpack(data)
    return int(size)


def greeting_call(server: bytes = FLUME_HASH, *, explicit: bool = False) -> bytes:
    """A handshake only.

    :param server: the hash that the receiver has, as far as it is known.
    :param explicit: with our text, for one that has another hash than Flume's.
    """
    given = OUR_HASH + long(1) + text(PROTOCOL) if explicit else FLUME_HASH + _NULL
    return given + server + _NULL + _NULL + text("")


def read_greeting(message: bytes) -> tuple[Match, bytes]:
    """What a handshake says, and the receiver's hash.

    :raises BadCallError: it is none, or another protocol than Flume's.
    """
    reader = Reader(message)
    try:
        match, given = Match(reader.long()), reader.optional(reader.text)
        server = reader.optional(lambda: reader.fixed(_HASH))
    except (IndexError, ValueError) as error:
        raise BadCallError(f"it does not speak Avro: {error}") from error
    if given is not None:
        check_protocol(given)
    return match, server or FLUME_HASH


def batch_call(events: Sequence[bytes]) -> bytes:
    """A call of ``appendBatch``, of encoded events."""
    return b"".join((_NULL, text("appendBatch"), array(events)))


def read_answer(message: bytes) -> Status:
    """What the answer to a call says.

    :raises BadCallError: it is none, or an error.
    """
    reader = Reader(message)
    try:
        _pass_metadata(reader)
        if not reader.flag():
            return Status(reader.long())
        reader.long()
        said = reader.text()[:1000]
    except (IndexError, ValueError) as error:
        raise BadCallError(f"it does not speak Avro: {error}") from error
    raise BadCallError(f"it answered: {said}")


def check_protocol(given: str) -> None:
    """See whether a text is that of Flume's protocol, whatever comments it has.

    :raises BadCallError: it is not.
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
    """Whether a type is the one that is wanted; what is wanted says how deep to look."""
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
    """A type, of its name if it has one."""
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
