"""Events of Fluentd, Fluent Bit and their libraries: the forward protocol over TCP, with TLS or without.

All modes are accepted: single messages, several, packed, packed with gzip or zstd. A message that asks for an
acknowledgement gets it once every required channel has committed its events. While a channel is full the connection is
not read, so the peer waits. An invalid message, or one larger than ``max_frame``, ends the connection; the messages
before it are put.

A record's fields become the event's headers, except ``field``, which becomes the body. Without ``field``, or if the
record has no such field, the body is the whole record as JSON. Each event has the headers ``tag`` and ``timestamp``
(milliseconds), and ``metadata``, ``group`` and ``time`` if the sender gives them (:mod:`.forward_events`).

Half of ``max_memory`` is for arriving messages, counted twice: their bytes are also in the buffer that is searched for
the messages' ends. Events that wait for a channel count there, too. The other half is for messages being parsed: one
large message at a time, and the small messages of one connection at a time. It holds unpacked data, an element's
objects and the events. Events without room in the first half are put before the next ones are made.
"""

from __future__ import annotations

import hmac
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ...model.options import option
from ...runtime.clock import Stop
from ...runtime.locks import Lock
from ..events.batch import EventBatch, batches_of
from ..events.interfaces import Context
from ..protocols.reckoning import Reckoning, of_event
from .budget import Budget, Holding
from .listening import Connection, TcpOptions, TcpSource
from .unpacking import UnpackingError

_READ = 1 << 18
#: Maximum number of events in a batch.
_MOST_EVENTS = 10_000
#: Copies of an arriving message: its bytes, and the buffer that is searched for its end.
_COPIES = 2
#: Maximum bytes of a small message; larger and packed ones are parsed one at a time.
_SMALL = 1 << 14
#: The shares of ``max_memory`` for an element's objects, a 4th, and for the events of one put, a 24th: both turns may
#: hold events, and each event exists twice. The last number is the minimum of a share, bytes.
_OF_ELEMENT, _OF_EVENTS, _LEAST_SHARE = 4, 24, 4 << 20
#: Seconds between two checks of a thread that waits for its turn or for memory.
_CHECK_SECONDS = 0.5


class _BadMessageError(Exception):
    """Raised for a message that is invalid or too large."""


class ForwardSource(TcpSource):
    """Source of events from Fluentd, Fluent Bit and their libraries, by the forward protocol."""

    needs: ClassVar = {"msgpack": "forward"}

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(TcpOptions):
        """Address, authentication and limits."""

        port: int = option(24224, least=0, most=65535, doc="port to listen on; 0 for any free one")
        field: str | None = option(None, doc="field that becomes the body, such as log; empty: the record as JSON")
        tag_header: str = option("tag", doc="header for the tag")
        shared_key: str | None = option(None, secret=True, doc="secret that peers must know")
        max_frame: int = option(16 << 20, least=1024, unit="bytes", doc="bytes of a message, packed and unpacked")
        max_memory: int = option(
            128 << 20,
            least=1024,
            unit="bytes",
            doc="maximum bytes of all messages: half for arriving ones, counted twice, half for parsing",
        )
        frame_timeout: float = option(60.0, least=0.001, doc="seconds for a message to arrive")

        def holds(self) -> int:
            """Return the maximum bytes that the source holds."""
            return self.max_memory

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__(options, [options.port], context)
        self._options, self._counters = options, context.counters
        # The byte after the largest frame needs memory, too: it shows that a message is too large, and must not wait
        # forever.
        largest = _COPIES * (options.max_frame + 1)
        self._budget = Budget(options.max_memory // 2, largest)
        self._share = max(options.max_memory // _OF_ELEMENT, _LEAST_SHARE)
        self._most_pending = max(options.max_memory // _OF_EVENTS, _LEAST_SHARE)
        self._turns = {large: Lock() for large in (False, True)}

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
            self.log_fault(connection.peer, error)
        finally:
            incoming.close()

    def _greet(self, connection: Connection, incoming: _Incoming, key: str) -> bool:
        """Authenticate the peer, and prove the key to it; return False if its key is wrong."""
        from ..protocols.forward import key_digest, packed, raw

        nonce, host = os.urandom(16), socket.gethostname()
        connection.send(packed(["HELO", {"nonce": nonce, "auth": "", "keepalive": True}]))
        ping = incoming.one()
        if not isinstance(ping, list) or len(ping) < 4 or ping[0] != "PING":
            raise _BadMessageError("it did not authenticate with the shared key")
        salt = raw(ping[2])
        known = hmac.compare_digest(raw(ping[3]), key_digest(salt, str(ping[1]), nonce, key).encode())
        digest = key_digest(salt, host, nonce, key) if known else ""
        connection.send(packed(["PONG", known, "" if known else "shared key mismatch", host, digest]))
        if not known:
            self._counters.add(ConnectionRefusedCount=1)
            self.log_fault(connection.peer, "its shared key is wrong")
        return known

    def _take(self, connection: Connection, incoming: _Incoming) -> bool:
        """Put and acknowledge complete messages; return False if the connection ends."""
        while incoming.ahead() is not None:
            pending = _Pending()
            try:
                if not self._take_alike(incoming, pending, large=incoming.large):
                    return False
            finally:
                self._acknowledge(connection, pending)
        return True

    def _take_alike(self, incoming: _Incoming, pending: _Pending, *, large: bool) -> bool:
        """Put messages of one size class, small or large, in one turn; return False if the source stops.

        The thread releases the turn before it waits for a channel, if there is memory for the events.
        """
        with self._turn(large=large):
            try:
                if not all(self._add(frame, pending) for frame in incoming.frames(large=large)):
                    return False
            except _BadMessageError:
                self._put(pending.batches(), pending)
                raise
            size, batches = pending.size, pending.batches()
            if not incoming.hold_events(size):
                return self._put(batches, pending)
        return self._put(batches, pending)

    def _add(self, frame: bytes, pending: _Pending) -> bool:
        """Parse a message, and put large ones in parts; return False if the source stops."""
        whole = len(pending.events)
        try:
            for event in self._events(frame, pending):
                pending.events.append(event)
                if len(pending.events) >= _MOST_EVENTS or pending.size > self._most_pending:
                    if not self._put(pending.batches(), pending):
                        return False
                    whole = 0
        except _BadMessageError:
            del pending.events[whole:]
            raise
        return True

    @contextmanager
    def _turn(self, *, large: bool) -> Iterator[None]:
        """Parse messages in turn, since they grow in memory; small ones do not wait for large ones."""
        turn = self._turns[large]
        while not turn.acquire(timeout=_CHECK_SECONDS):
            if self._stop.is_set():
                raise OSError("the source is stopping")
        try:
            yield
        finally:
            turn.release()

    def _put(self, batches: list[EventBatch], pending: _Pending) -> bool:
        """Put all batches; return False, and acknowledge nothing, if the source stops."""
        for batch in batches:
            if not self._intake.put_until(self._outlet, batch, self._stop):
                pending.chunks.clear()
                return False
        return True

    @staticmethod
    def _acknowledge(connection: Connection, pending: _Pending) -> None:
        from ..protocols.forward import packed

        if pending.chunks:
            connection.send(b"".join([packed({"ack": chunk}) for chunk in pending.chunks]))

    def _events(self, frame: bytes, pending: _Pending) -> Iterator[tuple[dict[str, str], bytes]]:
        """Yield the events of a message; then add its acknowledgement to ``pending``."""
        import msgpack

        from .forward_events import BadEventError, Message  # msgpack is an extra

        message = Message(frame, self._options.max_frame, Reckoning(self._check_share))
        try:
            for event in message.events(self._options.field, self._options.tag_header):
                pending.size += of_event(*event)
                yield event
        except (BadEventError, UnpackingError) as error:
            raise _BadMessageError(str(error)) from error
        except (msgpack.UnpackException, ValueError, RecursionError, MemoryError) as error:
            raise _no_msgpack(error) from error
        if message.chunk is not None:
            pending.chunks.append(message.chunk)

    def _check_share(self, size: int) -> None:
        """:raises _BadMessageError: an element of a message would become too large."""
        if size > self._share:
            raise _BadMessageError(f"one of its events needs more than {self._share} bytes of memory (max_memory)")


class _Pending:
    """Events to put, and the acknowledgements to send afterwards."""

    def __init__(self) -> None:
        self.events: list[tuple[dict[str, str], bytes]] = []
        self.chunks: list[Any] = []
        self.size = 0

    def batches(self) -> list[EventBatch]:
        """Make batches of the events, which are many times as large, and drop the events."""
        found = list(batches_of(self.events))
        self.events.clear()
        self.size = 0
        return found


class _Incoming:
    """Bytes from a peer, split into whole messages; a message is parsed only when it is complete.

    :ivar large: True if the next message is parsed in the turn of large ones.
    """

    def __init__(self, connection: Connection, options: ForwardSource.Options, budget: Budget, stop: Stop) -> None:
        from ..protocols.forward import unpacker

        self._connection, self._options, self._stop = connection, options, stop
        self._held = Holding(budget, connection.peer)
        # The end of a message is found in its last piece, which may contain bytes of the next one.
        self._unpacker = partial(unpacker, options.max_frame + _READ)
        self._buffer = bytearray()
        self._ends, self._start = self._unpacker(), 0
        self._until = 0.0
        self._ahead: bytes | None = None
        self.large = False

    def more(self) -> bool:
        """Wait for more bytes; return False at the end of the connection."""
        data, most = b"", min(_READ, self._options.max_frame + 1 - len(self._buffer))
        if not self._buffer:
            data = self._connection.read(most)
            self._until = time.monotonic() + self._options.frame_timeout
        with self._held.coming(self._until, self._connection.interrupt):
            data = data or self._connection.read(most, self._until)
            self._hold(len(data), self._until)
        if self._held.withdrawn:
            raise self._too_much()
        self._buffer += data
        self._ends.feed(data)
        return bool(data)

    def ahead(self) -> bytes | None:
        """Return the next complete message; None if there is none."""
        if self._ahead is None:
            self._ahead = self._next_frame()
            self.large = self._ahead is not None and _is_large(self._ahead)
        return self._ahead

    def frames(self, *, large: bool) -> Iterator[bytes]:
        """Yield complete messages, up to the first one of the other size class."""
        while (frame := self.ahead()) is not None and self.large == large:
            self._ahead = None
            yield frame

    def _next_frame(self) -> bytes | None:
        end = self._next_end()
        if end is None:
            self._check_rest()
            return None
        size = end - self._start
        with memoryview(self._buffer) as buffer:
            frame = bytes(buffer[:size])
        del self._buffer[:size]
        self._start = end
        self._until = time.monotonic() + self._options.frame_timeout  # for the next message
        return frame

    def _check_rest(self) -> None:
        if len(self._buffer) > self._options.max_frame:
            raise _BadMessageError(f"it sent a message of more than {self._options.max_frame} bytes (max_frame)")
        if self._start and len(self._buffer) <= _SMALL:
            self._reset_unpacker()

    def hold_events(self, size: int) -> bool:
        """Reserve memory for events, in place of their messages; return False if it is not free."""
        needed = _COPIES * len(self._buffer) + len(self._ahead or b"") + size - self._held.size
        return needed <= 0 or self._held.take(needed)

    def one(self) -> Any:
        """Return the next message of the handshake."""
        while self.more():
            frame, self._ahead = self.ahead(), None
            if frame is not None:
                self.settle()
                return _greeting(frame)
        raise _BadMessageError("it closed the connection before it authenticated")

    def settle(self) -> None:
        """Release all bytes except those of the incomplete message."""
        self._held.keep(_COPIES * len(self._buffer))

    def close(self) -> None:
        """Release all bytes."""
        self._held.keep(0)

    def _reset_unpacker(self) -> None:
        """Replace the unpacker, which keeps the memory of its largest message."""
        self._ends, self._start = self._unpacker(), 0
        self._ends.feed(self._buffer)

    def _hold(self, size: int, until: float) -> None:
        """Wait for memory for bytes that arrived; nothing more is read meanwhile, so the peer waits."""
        while not self._held.withdrawn and not self._held.take(_COPIES * size):
            left = until - time.monotonic()
            if left <= 0:
                raise self._too_much()
            self._held.wait(_COPIES * size, min(_CHECK_SECONDS, left))
            if self._stop.is_set():
                raise OSError("the source is stopping")

    def _too_much(self) -> _BadMessageError:
        return _BadMessageError(f"all peers together send more than {self._options.max_memory} bytes (max_memory)")

    def _next_end(self) -> int | None:
        import msgpack

        try:
            self._ends.skip()
        except msgpack.OutOfData:
            return None
        except (msgpack.UnpackException, ValueError) as error:
            raise _no_msgpack(error) from error
        return int(self._ends.tell())


def _is_large(frame: bytes) -> bool:
    return len(frame) >= _SMALL or b"compressed" in frame


def _greeting(frame: bytes) -> Any:
    """Parse a message of the handshake."""
    import msgpack

    if len(frame) > _SMALL:
        raise _BadMessageError("it did not authenticate with the shared key")
    try:
        return msgpack.unpackb(frame, unicode_errors="surrogateescape", strict_map_key=False)
    except (msgpack.UnpackException, ValueError, TypeError, RecursionError) as error:
        raise _no_msgpack(error) from error


def _no_msgpack(error: BaseException) -> _BadMessageError:
    return _BadMessageError(f"it sent invalid MessagePack: {type(error).__name__}")
