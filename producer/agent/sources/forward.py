"""Events of Fluentd, Fluent Bit and their libraries: the forward protocol over TCP, with TLS or without.

All modes are understood: single messages, several, packed, packed with gzip. What is asked for an acknowledgement gets
it once every required channel has the events. While a channel is full a connection waits, and so does its peer. A peer
that sends anything else, or more at a time than ``max_frame``, loses its connection; what stood before that is taken.

A record's fields are the event's headers, but for ``field``, which is its body; without ``field``, or where a record
has none of that name, the body is the whole record as JSON. The headers ``tag`` and ``timestamp`` (milliseconds) come
with each. The file is long since every mode counts what it holds by the same rules.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ..batch import batches_of
from ..interfaces import Context, Outlet, Stop
from ..options import option
from .budget import Budget, Holding
from .intake import Intake
from .listening import Connection, TcpOptions, TcpServer

_READ = 1 << 18
#: Events of one batch.
_MOST_EVENTS = 10_000
#: What has come of a message is there so often: as its bytes, and where its end is looked for.
_COPIES = 2
#: Bytes of a message that is taken apart at once; of others one at a time.
_SMALL = 1 << 14
#: Bytes of a message whose events are not packed, or of what stands behind packed ones: as objects they are up to 64
#: times as large.
_MOST_PLAIN = 4 << 20
#: First bytes of MessagePack's bytes and long texts.
_BYTES_AND_TEXTS = frozenset((0xC4, 0xC5, 0xC6, 0xD9, 0xDA, 0xDB))
#: Seconds: who waits for a turn, or for memory, looks again so often.
_LOOK = 0.5


class _BadMessageError(Exception):
    """It is none of this protocol, or too large."""


class ForwardSource:
    """See the module."""

    endless = True

    needs: ClassVar = {"msgpack": "forward"}

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(TcpOptions):
        """Where to listen, for whom, and how much they may send."""

        port: int = option(24224, least=0, most=65535, doc="to listen on; 0 for any free one")
        field: str | None = option(None, doc="the field that is the body, such as log; empty: the record as JSON")
        tag_header: str = option("tag", doc="the header with the tag")
        shared_key: str | None = option(None, secret=True, doc="what peers must know, too")
        max_frame: int = option(16 << 20, least=1024, unit="bytes", doc="bytes of a message, packed and unpacked")
        max_memory: int = option(
            128 << 20,
            least=1024,
            unit="bytes",
            doc="bytes of messages that have not come whole, of all peers, each twice",
        )
        frame_timeout: float = option(60.0, least=0.001, doc="seconds that a message may take to come")

        def holds(self) -> int:
            """Bytes at most."""
            return self.max_memory

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._counters = options, context.counters
        self._budget, self._intake = Budget(options.max_memory, _COPIES * options.max_frame), Intake(context)
        self._turns = threading.BoundedSemaphore(1)
        self.server = TcpServer(options, [options.port], context, self._serve)
        self.listening = self.server.listening

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """See :class:`~..interfaces.Source`."""
        self._outlet, self._stop = outlet, stop
        self.server.run(stop)

    def _serve(self, connection: Connection) -> None:
        incoming = _Incoming(connection, self._options, self._budget, self._stop)
        try:
            if self._options.shared_key is not None and not self._greet(connection, incoming, self._options.shared_key):
                return
            while incoming.more():
                if not self._take(connection, incoming):
                    return
                incoming.settle()
        except _BadMessageError as error:
            self._counters.add(EventReadFail=1)
            self.server.tell(connection.peer, error)
        finally:
            incoming.close()

    def _greet(self, connection: Connection, incoming: _Incoming, key: str) -> bool:
        """Have the peer show that it knows the key, and show it to the peer; whether it does."""
        from ..protocols.forward import key_digest, packed, raw  # noqa: PLC0415

        nonce, host = os.urandom(16), socket.gethostname()
        connection.send(packed(["HELO", {"nonce": nonce, "auth": "", "keepalive": True}]))
        ping = incoming.one()
        if not isinstance(ping, list) or len(ping) < 4 or ping[0] != "PING":
            raise _BadMessageError("it did not say who it is")
        salt = raw(ping[2])
        known = hmac.compare_digest(raw(ping[3]), key_digest(salt, str(ping[1]), nonce, key).encode())
        digest = key_digest(salt, host, nonce, key) if known else ""
        connection.send(packed(["PONG", known, "" if known else "shared key mismatch", host, digest]))
        if not known:
            self._counters.add(ConnectionRefusedCount=1)
            self.server.tell(connection.peer, "it does not know the shared key")
        return known

    def _take(self, connection: Connection, incoming: _Incoming) -> bool:
        """Put what has come whole, and acknowledge it; whether the connection goes on."""
        pending = _Pending()
        try:  # no message's bytes are kept while a channel is waited for
            if not all(self._add(frame, pending, connection) for frame in incoming.frames()):
                return False
        except _BadMessageError:
            self._put(connection, pending)
            raise
        return self._put(connection, pending)

    def _add(self, frame: bytes, pending: _Pending, connection: Connection) -> bool:
        """Take a message apart, and put what it has in parts if it is much; False if the source ended meanwhile."""
        with self._turn(frame):
            whole = len(pending.events)
            try:
                for event in self._events(frame, pending):
                    pending.events.append(event)
                    if len(pending.events) >= _MOST_EVENTS:
                        if not self._put(connection, pending):
                            return False
                        whole = 0
            except _BadMessageError:
                del pending.events[whole:]
                raise
        return True

    @contextmanager
    def _turn(self, frame: bytes) -> Iterator[None]:
        """What is large is taken apart one at a time: it becomes far larger."""
        if len(frame) < _SMALL:
            yield
            return
        while not self._turns.acquire(timeout=_LOOK):
            if self._stop.is_set():
                raise OSError("the source ends")
        try:
            yield
        finally:
            self._turns.release()

    def _put(self, connection: Connection, pending: _Pending) -> bool:
        from ..protocols.forward import packed  # noqa: PLC0415

        batches = list(batches_of(pending.events))
        pending.events.clear()  # while a channel is waited for: as objects they are many times as large
        for batch in batches:
            if not self._intake.put_until(self._outlet, batch, self._stop):
                return False
        if pending.chunks:
            connection.send(b"".join([packed({"ack": chunk}) for chunk in pending.chunks]))
        pending.chunks.clear()
        return True

    def _events(self, frame: bytes, pending: _Pending) -> Iterator[tuple[dict[str, str], bytes]]:
        """The events of a message; what it wants to be acknowledged follows in ``pending``."""
        message = _value(frame)
        if message is None:
            return
        if not isinstance(message, list) or not 2 <= len(message) <= 4 or not isinstance(message[0], str | bytes):
            raise _BadMessageError("it sent something that is no message")
        tag, content = _text(message[0]), message[1]
        several = isinstance(content, list | str | bytes)
        option = message[2 if several else 3] if len(message) > (2 if several else 3) else None
        option = option if isinstance(option, dict) else {}
        if isinstance(content, list):
            entries: Iterable[Any] = content
        elif several:
            entries = self._entries(content, option)
        else:
            entries = [message[1:3]]
        for entry in entries:
            yield self._event(tag, entry)
        if option.get("chunk") is not None:
            pending.chunks.append(option["chunk"])

    def _entries(self, content: str | bytes, option: Mapping[Any, Any]) -> Iterator[Any]:
        """Packed ones."""
        from ..protocols.forward import raw, unpacker  # noqa: PLC0415

        data, most = raw(content), self._options.max_frame
        compressed = option.get("compressed", "text")
        if compressed not in ("text", "gzip"):
            raise _BadMessageError(f"gzip is understood, no other packing: {str(compressed)[:20]!r}")
        if compressed == "gzip":
            data = _unzipped(data, most)
        entries = unpacker(max(most, len(data)))
        entries.feed(data)
        end = 0
        for entry, after in _read(entries):
            yield entry
            end = after
        if end != len(data):
            raise _BadMessageError("packed events are not whole")

    def _event(self, tag: str, entry: Any) -> tuple[dict[str, str], bytes]:
        from ..protocols.forward import milliseconds  # noqa: PLC0415

        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[1], dict):
            raise _BadMessageError("an event is a time and a record")
        stamp, record = milliseconds(entry[0]), entry[1]
        field = self._options.field
        if field is not None and field in record:
            headers = {
                _text(name): _text(value) for name, value in record.items() if name != field and value is not None
            }
            body = _text(record[field]).encode("utf-8", "surrogateescape")
        else:
            headers, body = {}, _json(record).encode("utf-8", "replace")
        headers[self._options.tag_header] = tag
        if stamp is not None:
            headers["timestamp"] = str(stamp)
        return headers, body


class _Pending:
    """What is to be put, and acknowledged then."""

    def __init__(self) -> None:
        self.events: list[tuple[dict[str, str], bytes]] = []
        self.chunks: list[Any] = []


class _Incoming:
    """What a peer sends, as the bytes of whole messages: until one is whole, nothing is made of it."""

    def __init__(self, connection: Connection, options: ForwardSource.Options, budget: Budget, stop: Stop) -> None:
        from ..protocols.forward import unpacker  # noqa: PLC0415

        self._connection, self._options, self._stop = connection, options, stop
        self._held = Holding(budget, connection.peer)
        # Where a message ends is found when its last piece is read, with what comes behind it.
        self._unpacker = partial(unpacker, options.max_frame + _READ)
        self._buffer = bytearray()
        self._ends, self._start = self._unpacker(), 0
        self._until: float | None = None

    def more(self) -> bool:
        """Wait for more; whether there is any."""
        if not self._buffer:
            self._until = None
        data = self._connection.read(_READ, self._until)
        if self._until is None:
            self._until = time.monotonic() + self._options.frame_timeout
        self._hold(len(data), self._until)
        self._buffer += data
        self._ends.feed(data)
        return bool(data)

    def frames(self) -> Iterator[bytes]:
        """Messages that are whole."""
        while (end := self._next_end()) is not None:
            size = end - self._start
            with memoryview(self._buffer) as buffer:
                frame = bytes(buffer[:size])
            del self._buffer[:size]
            self._start = end
            yield frame
        if len(self._buffer) > self._options.max_frame:
            raise _BadMessageError(f"it sent a message of more than {self._options.max_frame} bytes (max_frame)")
        if self._start and len(self._buffer) <= _SMALL:
            self._look_from_here()

    def one(self) -> Any:
        """The next message."""
        while self.more():
            for frame in self.frames():
                self.settle()
                return _value(frame)
        raise _BadMessageError("it went away")

    def settle(self) -> None:
        """Of what came only the message that is not whole is still needed."""
        self._held.keep(_COPIES * len(self._buffer))

    def close(self) -> None:
        """Its bytes are needed no more."""
        self._held.keep(0)

    def _look_from_here(self) -> None:
        """Look for ends by another unpacker: one keeps the memory that its largest message took."""
        self._ends, self._start = self._unpacker(), 0
        self._ends.feed(self._buffer)

    def _hold(self, size: int, until: float) -> None:
        """Wait for memory for what came; meanwhile nothing more is read, and the peer waits."""
        while not self._held.take(_COPIES * size):
            left = until - time.monotonic()
            if left <= 0:
                raise _BadMessageError(
                    f"all peers send more at a time than {self._options.max_memory} bytes (max_memory)"
                )
            if self._stop.wait(min(_LOOK, left)):
                raise OSError("the source ends")

    def _next_end(self) -> int | None:
        import msgpack  # noqa: PLC0415  # it is an extra

        try:
            self._ends.skip()
        except msgpack.OutOfData:
            return None
        except (msgpack.UnpackException, ValueError) as error:
            raise _no_msgpack(error) from error
        return int(self._ends.tell())


def _value(frame: bytes) -> Any:
    """What a message holds."""
    import msgpack  # noqa: PLC0415

    from ..protocols.forward import unpacker  # noqa: PLC0415

    values = unpacker(max(1, len(frame)))
    values.feed(frame)
    try:
        if len(frame) > _MOST_PLAIN and len(frame) - _size_of_packed(frame) > _MOST_PLAIN:
            raise _BadMessageError(f"it sent a message of more than {_MOST_PLAIN} bytes whose events are not packed")
        return values.unpack()
    except (msgpack.UnpackException, ValueError, RecursionError, MemoryError) as error:
        raise _no_msgpack(error) from error


def _size_of_packed(frame: bytes) -> int:
    """Bytes of a message's second value, if that is bytes or text."""
    from ..protocols.forward import unpacker  # noqa: PLC0415

    values = unpacker(len(frame))
    values.feed(frame)
    values.read_array_header()
    values.skip()
    start = values.tell()
    values.skip()
    return values.tell() - start if frame[start] in _BYTES_AND_TEXTS else 0


def _no_msgpack(error: BaseException) -> _BadMessageError:
    return _BadMessageError(f"it sent something that is no MessagePack: {type(error).__name__}")


def _read(values: Any) -> Iterator[tuple[Any, int]]:
    """Values that are whole, and where each ends."""
    import msgpack  # noqa: PLC0415

    try:
        for value in values:
            yield value, values.tell()
    except (msgpack.UnpackException, ValueError, RecursionError, MemoryError) as error:
        raise _no_msgpack(error) from error


def _unzipped(data: bytes, most: int) -> bytes:
    """However many members there are."""
    found, left = [], most
    try:
        while data:
            unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
            piece = unpacker.decompress(data, left + 1)
            left -= len(piece)
            if left < 0:
                raise _BadMessageError(f"more than {most} bytes, unpacked (max_frame)")
            if not unpacker.eof:
                raise _BadMessageError("packed events are not whole")
            found.append(piece)
            data = unpacker.unused_data
    except zlib.error as error:
        raise _BadMessageError(f"no gzip: {error}") from error
    return b"".join(found)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_other, skipkeys=True)


def _other(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
