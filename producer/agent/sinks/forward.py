"""Send events to Fluentd, Fluent Bit, or an agent's source ``forward``: packed, and acknowledged chunk by chunk.

The body is the field ``field`` of a record, and headers are its other fields. The header ``tag`` selects the tag, and
``timestamp`` (milliseconds) the time. An acknowledgement means that the receiver has the events in its buffer. Without
it within ``timeout`` the delivery fails and the events are sent again, so they may be duplicated.
"""

from __future__ import annotations

import gzip
import os
import socket
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...model.options import option
from ...runtime.clock import Deadline
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .peers import Peer, PeerOptions, PeerSink
from .stamps import STAMP, milliseconds

_MOST_ANSWER = 1 << 20
#: Maximum bytes of a message's entries, unless a single event has more.
_MOST_MESSAGE = 8 << 20


class ForwardSink(PeerSink):
    """Sink to Fluentd, Fluent Bit, or an agent's source ``forward``."""

    needs: ClassVar = {"msgpack": "forward"}
    most_bytes = 2 << 20

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(PeerOptions):
        """The receiver, and the form of records."""

        host: str = option(doc="host of the receiver")
        port: int = option(24224, least=1, most=65535, doc="port of the receiver")
        tag: str = option("agent", doc="tag of events without the tag's header")
        tag_header: str = option("tag", doc="header for the tag")
        field: str = option("message", doc="field of a record for the body")
        headers: bool = option(True, doc="send headers as fields")
        batch_size: int = option(10_000, least=1, doc="maximum number of events delivered at once")
        compress: bool = option(False, doc="compress with gzip")
        connect_timeout: float = option(5.0, least=0.001, doc="seconds to connect")
        timeout: float = option(30.0, least=0.001, doc="seconds for a delivery and its acknowledgements")
        shared_key: str | None = option(None, secret=True, doc="secret that the receiver requires")

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__(options, context, (options.host, options.port), options.connect_timeout)
        self._options, self.most_events = options, options.batch_size
        #: Bytes of the entries in the largest message of a delivery.
        self._largest = 0

    def write(self, batches: Sequence[EventBatch]) -> None:
        messages = self._messages(batches)
        if not messages:
            return
        try:
            receiver: _Receiver = self._connected()
            deadline = Deadline.after(self._clock, self._options.timeout)
            for message in messages.values():
                receiver.peer.send(message, deadline)
            receiver.await_acknowledged(set(messages), deadline)
        except (OSError, ValueError) as error:
            raise self._failed(error, self._largest) from error

    def _line_to(self, peer: Peer, deadline: Deadline) -> _Receiver:
        receiver, key = _Receiver(peer), self._options.shared_key
        if key is not None:
            receiver.greet(key, deadline)
        return receiver

    def _messages(self, batches: Sequence[EventBatch]) -> dict[str, bytes]:
        """Return the messages of each tag, by their chunks."""
        from ..protocols.forward import packed

        entries = defaultdict[str, bytearray](bytearray)  # objects of short events would need many times their bytes
        counts = Counter[str]()
        found: dict[str, bytes] = {}
        now, self._largest = round(self._clock.time() * 1000), 0
        for batch in batches:
            for headers, body in batch.events():
                tag, entry = headers.get(self._options.tag_header) or self._options.tag, self._entry(headers, body, now)
                data = packed(entry)
                if tag in entries and len(entries[tag]) + len(data) > _MOST_MESSAGE:
                    found |= self._message(tag, entries.pop(tag), counts.pop(tag))
                entries[tag] += data
                counts[tag] += 1
        for tag, packed_entries in entries.items():
            found |= self._message(tag, packed_entries, counts[tag])
        return found

    def _message(self, tag: str, entries: bytearray, count: int) -> dict[str, bytes]:
        """Return a message with entries of one tag, by its chunk."""
        from ..protocols.forward import packed

        self._largest = max(self._largest, len(entries))
        chunk = b64encode(os.urandom(16)).decode()
        more: dict[str, Any] = {"size": count, "chunk": chunk}
        if self._options.compress:
            more["compressed"] = "gzip"
        return {chunk: packed([tag, gzip.compress(entries, 1) if self._options.compress else entries, more])}

    def _entry(self, headers: Mapping[str, str], body: bytes, now: int) -> list[Any]:
        from ..protocols.forward import event_time

        options, time = self._options, milliseconds(headers.get(STAMP), now)
        record: dict[str, Any] = {}
        if options.headers:
            left_out = (options.tag_header, STAMP)
            record |= {name: value for name, value in headers.items() if name not in left_out}
        try:
            record[options.field] = body.decode()
        except UnicodeDecodeError:
            record[options.field] = body
        return [event_time(time), record]


class _Receiver:
    """Receiver of messages, which acknowledges chunks."""

    def __init__(self, peer: Peer) -> None:
        from ..protocols.forward import unpacker

        self.peer = peer
        self._answers = unpacker(_MOST_ANSWER)

    def greet(self, key: str, deadline: Deadline) -> None:
        """Authenticate with the shared key, and check that the receiver knows it.

        :raises ValueError: the key is wrong on one side.
        """
        from ..protocols.forward import key_digest, packed, raw

        helo = self._answer(deadline)
        if not isinstance(helo, list) or len(helo) < 2 or helo[0] != "HELO" or not isinstance(helo[1], dict):
            raise ValueError("the receiver has no shared key, or does not speak the forward protocol")
        nonce, salt, host = raw(helo[1].get("nonce", b"")), os.urandom(16), socket.gethostname()
        self.peer.send(packed(["PING", host, salt, key_digest(salt, host, nonce, key), "", ""]), deadline)
        pong = self._answer(deadline)
        if not isinstance(pong, list) or len(pong) < 5 or pong[0] != "PONG" or not pong[1]:
            raise ValueError("the receiver refuses the shared key")
        if raw(pong[4]) != key_digest(salt, str(pong[3]), nonce, key).encode():
            raise ValueError("the receiver does not know the shared key")

    def await_acknowledged(self, chunks: set[str], deadline: Deadline) -> None:
        """Wait until all chunks are acknowledged.

        :raises OSError: the connection failed, or the time is over.
        :raises ValueError: an answer is invalid.
        """
        while chunks:
            answer = self._answer(deadline)
            if isinstance(answer, dict):
                chunks.discard(str(answer.get("ack")))

    def _answer(self, deadline: Deadline) -> Any:
        import msgpack

        while True:
            try:
                return self._answers.unpack()
            except msgpack.OutOfData:
                self._answers.feed(self.peer.receive(deadline))
            except msgpack.UnpackException as error:
                raise ValueError("the receiver does not speak the forward protocol") from error
