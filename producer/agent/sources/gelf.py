"""GELF of Graylog's clients, over UDP, TCP or HTTP. :mod:`..protocols.gelf` parses the messages.

* ``udp``: a message is a datagram, or several chunks; compressed with gzip or zlib, or plain.
* ``tcp``: messages end with NUL. While a channel is full the connection is not read, so the peer waits.
* ``http``: a message is the body of a POST. 202 means that every required channel has committed it.

Over UDP and TCP, an invalid message is dropped, counted and logged. The events of one connection are made and put at a
time, so that their memory is bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ...model.errors import ConfigError
from ...model.options import option
from ...runtime.clock import Stop
from ...runtime.locks import Lock
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ..events.batch import EventBatch
from ..events.interfaces import Context, Outlet
from ..protocols.gelf import Chunks, Event, GelfError, batches, cut, event_of
from .budget import Budget, Holding
from .datagrams import Datagram, UdpOptions, UdpSource
from .http_requests import Request, one_at_a_time, refusing
from .listening import Connection, TcpSource
from .posts import PostSource, RequestOptions
from .unpacking import UnpackingError, packing_of, unpacked

_log = get_logger("loghub.agent.source")

#: Shares of ``max_memory``: for chunks of unfinished messages, and for the JSON of one message.
_OF_CHUNKS, _OF_JSON = 4, 4
#: Bytes of a read.
_READ = 1 << 18
#: Seconds between two checks of a connection that waits for memory.
_CHECK_SECONDS = 0.5
#: Encodings that graypy names together; it sends the second one.
_BOTH = ("gzip,deflate", "gzip, deflate")


@dataclass(frozen=True, slots=True, kw_only=True)
class GelfOptions(RequestOptions):
    """Transport, address and limits."""

    transport: str = option("udp", choices=("udp", "tcp", "http"), doc="how messages are sent")
    port: int = option(12201, least=0, most=65535, doc="port to listen on; 0 for any free one")
    silence: float = option(3600.0, least=0.001, doc="seconds after which a silent connection is closed")
    max_body: int = option(2 << 20, least=1024, unit="bytes", doc="maximum bytes of a message, packed and unpacked")
    chunk_timeout: float = option(5.0, least=0.001, doc="udp: seconds for all chunks of a message to arrive")
    batch_size: int = option(1000, least=1, doc="udp: maximum number of datagrams read at once")
    receive_buffer: int = option(
        4 << 20, least=0, unit="bytes", doc="udp: bytes of the system's receive buffer; 0 for its default"
    )

    def __post_init__(self) -> None:
        RequestOptions.__post_init__(self)
        if self.transport == "udp" and self.certificate is not None:
            raise ConfigError("certificate", "needs transport = tcp or http", str(self.certificate))
        if self.transport != "http" and (self.user is not None or self.token is not None):
            raise ConfigError("transport", "must be http for user or token", self.transport)


class GelfSource:
    """Source of Graylog's format GELF, over UDP, TCP or HTTP."""

    needs: ClassVar = PostSource.needs
    endless = True

    Options = GelfOptions

    def __init__(self, options: GelfOptions, context: Context) -> None:
        kinds: dict[str, type[_Udp | _Tcp | _Http]] = {"udp": _Udp, "tcp": _Tcp, "http": _Http}
        self._source = kinds[options.transport](options, context)
        self.addresses, self.listening = self._source.addresses, self._source.listening

    def run(self, outlet: Outlet, stop: Stop) -> None:
        self._source.run(outlet, stop)


class _Parser:
    """Parser of messages, which drops, counts and logs invalid ones."""

    def __init__(self, options: GelfOptions, context: Context) -> None:
        self._most, self._memory = options.max_body, options.max_memory // _OF_JSON
        self._name, self._counters = context.name, context.counters
        self._repeated = RateLimitedLog(context.clock)

    def events(self, messages: Iterable[bytes]) -> Iterator[Event]:
        """Yield the events of messages."""
        for message in messages:
            try:
                yield event_of(plain(message, self._most), self._hold)
            except GelfError as error:
                self.drop(error)

    def drop(self, error: GelfError, messages: int = 1) -> None:
        """Count and log dropped messages."""
        self._counters.add(EventReadFail=messages)
        if (more := self._repeated.due_error(error)) is not None:
            _log.warning("source %s: dropped: %s%s", self._name, error, more)

    def _hold(self, size: int) -> None:
        if size > self._memory:
            raise GelfError(f"a message takes more than {self._memory} bytes of memory (max_memory / {_OF_JSON})")


class _Udp(UdpSource):
    """Receiver of datagrams."""

    def __init__(self, options: GelfOptions, context: Context) -> None:
        of_udp = UdpOptions(
            bind=options.bind,
            socket_mode=options.socket_mode,
            batch_size=options.batch_size,
            receive_buffer=options.receive_buffer,
        )
        super().__init__(of_udp, options.port, context)
        self._clock, self._parser = context.clock, _Parser(options, context)
        self._chunks = Chunks(options.max_memory // _OF_CHUNKS, options.chunk_timeout)

    def _batches(self, datagrams: Sequence[Datagram]) -> Iterator[EventBatch]:
        return batches(self._parser.events(self._messages(datagrams)))

    def _messages(self, datagrams: Sequence[Datagram]) -> Iterator[bytes]:
        for data, peer in datagrams:
            now = self._clock.monotonic()
            try:
                message = self._chunks.add(peer, data, now)
            except GelfError as error:
                self._parser.drop(error)
                continue
            if message:
                yield message
            if dropped := self._chunks.drop_old(now):
                self._parser.drop(GelfError("messages whose chunks did not all arrive in time"), dropped)


class _Tcp(TcpSource):
    """Server of connections whose messages end with NUL."""

    def __init__(self, options: GelfOptions, context: Context) -> None:
        super().__init__(options, [options.port], context)
        self._options, self._parser = options, _Parser(options, context)
        self._budget = Budget(options.max_memory // 2, options.max_body + _READ)
        self._turn = Lock()

    def _serve(self, connection: Connection) -> None:
        held = Holding(self._budget, connection.peer)
        try:
            self._read(connection, held)
        except GelfError as error:
            self._parser.drop(error)
            self.log_fault(connection.peer, error)
        finally:
            held.keep(0)

    def _read(self, connection: Connection, held: Holding) -> None:
        rest, until = bytearray(), 0.0
        while self._intake.wait_for_memory(self._outlet, self._stop):
            data = b"" if rest else connection.read(_READ)
            until = until if rest else self._deadline()
            data = self._arrived(connection, held, data, until)
            rest += data
            whole, rest = cut(rest) if b"\0" in data else ((), rest)
            if whole:
                until = self._deadline()
                if not self._put(whole):
                    return
            if len(rest) > self._options.max_body:
                raise GelfError(f"a message has more than {self._options.max_body} bytes (max_body)")
            held.keep(len(rest))
            if not data:
                break
        if rest:
            self._put([bytes(rest)])

    def _deadline(self) -> float:
        return time.monotonic() + self._options.request_timeout

    def _arrived(self, connection: Connection, held: Holding, data: bytes, until: float) -> bytes:
        """Return bytes that arrive, once there is memory for them.

        :param data: bytes that have arrived; empty to wait for more of a message.
        :raises GelfError: no memory became free in time, or the message was withdrawn in favour of an older one.
        """
        with held.coming(until, connection.interrupt):
            data = data or connection.read(_READ, until)
            while not held.take(len(data)):
                if held.withdrawn or self._stop.is_set() or time.monotonic() > until:
                    raise GelfError("no memory is free (max_memory)")
                held.wait(len(data), _CHECK_SECONDS)
        if held.withdrawn:
            raise GelfError("no memory is free (max_memory)")
        return data

    def _put(self, messages: Sequence[bytes]) -> bool:
        """Put messages; return False if the source stops. One connection at a time has events in memory."""
        with self._turn:
            made = batches(self._parser.events(messages))
            return all(self._intake.put_until(self._outlet, batch, self._stop) for batch in made)


class _Http(PostSource):
    """Server of requests with a message each."""

    accepted = 202

    def __init__(self, options: GelfOptions, context: Context) -> None:
        super().__init__(options, options.port, context)
        self._most = options.max_body

    def _check(self, request: Request) -> None:
        super()._check(request)
        if request.headers.get("content-encoding", "").lower() in _BOTH:
            request.headers = {**request.headers, "content-encoding": "deflate"}

    def _batches(self, request: Request, body: bytes) -> Iterable[EventBatch]:
        hold: Callable[[int], None] = partial(self._limits.hold, request)
        with refusing(GelfError), one_at_a_time:
            return list(batches([event_of(plain(body, self._most), hold)]))


def plain(message: bytes, most: int) -> bytes:
    """Unpack a message if it is compressed with gzip or zlib.

    :param most: maximum bytes of a message.
    :raises GelfError: it is too large, or cannot be unpacked.
    """
    kind, found = packing_of(message), bytearray()
    try:
        for piece in [message] if kind is None else unpacked(kind, [message]):
            if len(found) + len(piece) > most:
                raise GelfError(f"a message has more than {most} bytes (max_body)")
            found += piece
    except UnpackingError as error:
        raise GelfError(f"a message cannot be unpacked: {error}") from error
    return bytes(found)
