"""Syslog over TCP, with TLS or without, on one port or several, and over UDP.

Modelled on Flume's ``SyslogTcpSource``, ``MultiportSyslogTCPSource`` and ``SyslogUDPSource``. :mod:`.syslog_frames`
splits a connection into messages, and :mod:`.syslog_events` parses them. The messages of one read are one batch. The
protocol has no acknowledgement. While a channel is full the connection is not read, so the peer waits. Messages that
were sent and not committed are lost if either side dies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...model.errors import ConfigError
from ...model.options import option
from ...runtime.clock import Clock
from ..config.flume_keys import without_needless
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .datagrams import Datagram, UdpOptions, UdpSource
from .listening import Connection, TcpOptions, TcpSource
from .syslog_events import FIELDS, SyslogParser
from .syslog_frames import Frames, FramingError
from .unix_sockets import is_unix

#: Messages put at once.
_AT_ONCE = 1 << 14
_PORT = "port to listen on; 0 for any free one"
_KEEP = "fields that stay in bodies: none, all, or some of " + " ".join(FIELDS)


def kept(fields: Sequence[str]) -> Sequence[str]:
    """Return the fields that stay in bodies.

    :raises ConfigError: a field is unknown.
    """
    named = [field for field in fields if field not in ("none", "false")]
    if set(named) & {"all", "true"}:
        return FIELDS
    for field in named:
        if field not in FIELDS:
            raise ConfigError("keep_fields", f"must be none, all, or some of {' '.join(FIELDS)}", field)
    return named


def _translated(texts: Mapping[str, str]) -> dict[str, str]:
    """Rename ``host``, the address to listen on, and drop options without effect.

    Bodies are bytes, and the messages of one read are a batch.
    """
    found = without_needless(texts, ("batchSize", "readBufferSize", "numProcessors"))
    for key in [key for key in found if key.startswith("charset.")]:
        if found[key].lower() in ("utf-8", "utf8"):
            del found[key]
    return {"bind" if key == "host" else key: value for key, value in found.items()}


def _decode_sample(options: Any, data: bytes, clock: Clock) -> EventBatch:
    """Return the events of messages, one a line, without the peer's headers."""
    messages = [line for line in data.replace(b"\r\n", b"\n").split(b"\n") if line]
    return SyslogParser(kept(options.keep_fields), clock).batch(messages) if messages else EventBatch.of_lines(b"")


class SyslogTcpSource(TcpSource):
    """Source of syslog over TCP. Modelled on Flume's ``SyslogTcpSource`` and ``MultiportSyslogTCPSource``."""

    decode_sample = staticmethod(_decode_sample)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(TcpOptions):
        """Options of Flume's ``syslogtcp`` and ``multiport_syslogtcp``."""

        port: int | None = option(None, least=0, most=65535, doc=_PORT)
        ports: tuple[int, ...] = option((), doc="several ports to listen on, instead of port")
        event_size: int = option(
            1 << 16, least=16, unit="bytes", doc="maximum bytes of a message; a longer one is truncated"
        )
        keep_fields: tuple[str, ...] = option(("none",), doc=_KEEP)
        client_ip_header: str | None = option(None, flume="clientIPHeader", doc="header for the peer's address")
        port_header: str | None = option(None, doc="header for the local port")

        def __post_init__(self) -> None:
            kept(self.keep_fields)
            if self.port is None and not self.ports and not is_unix(self.bind):
                raise ConfigError("port", "is missing: port, or ports for several", None)
            if self.port is not None and self.ports:
                raise ConfigError("port", "must not be given together with ports: add it to them", self.port)
            if not all(0 <= port <= 65535 for port in self.ports):
                raise ConfigError("ports", "must be from 0 to 65535", self.ports)
            TcpOptions.__post_init__(self)

        translate_flume = staticmethod(_translated)

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__(options, options.ports if options.port is None else (options.port,), context)
        self._options = options
        self._parser = SyslogParser(kept(options.keep_fields), context.clock)

    def _serve(self, connection: Connection) -> None:
        frames, shared = Frames(self._options.event_size), self._shared(connection)
        while self._intake.wait_for_memory(self._outlet, self._stop) and (data := connection.read()):
            try:
                messages = frames.feed(data)
            except FramingError as error:
                self.log_fault(connection.peer, error)
                return
            if not self._put(messages, frames.cut, shared):
                return
        self._put(frames.end(), frames.cut, shared)

    def _put(self, messages: Sequence[bytes], cut: Sequence[int], shared: Mapping[str, str]) -> bool:
        """Put messages in parts: parsed, a message of two bytes is several hundred times as large."""
        for start in range(0, len(messages), _AT_ONCE):
            part = messages[start : start + _AT_ONCE]
            if not self._put_part(part, [number - start for number in cut if 0 <= number - start < len(part)], shared):
                return False
        return True

    def _put_part(self, messages: Sequence[bytes], cut: Sequence[int], shared: Mapping[str, str]) -> bool:
        plain = [message.removesuffix(b"\n").removesuffix(b"\r") for message in messages]
        if not all(plain):
            cut = [sum(map(bool, plain[:number])) for number in cut if plain[number]]
            plain = [message for message in plain if message]
        return not plain or self._intake.put_until(self._outlet, self._parser.batch(plain, cut, shared), self._stop)

    def _shared(self, connection: Connection) -> dict[str, str]:
        options = self._options
        named = {options.client_ip_header: connection.peer, options.port_header: str(connection.port)}
        return {name: value for name, value in named.items() if name is not None}


class SyslogUdpSource(UdpSource):
    """Source of syslog over UDP: each datagram is a message. Modelled on Flume's ``SyslogUDPSource``."""

    decode_sample = staticmethod(_decode_sample)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(UdpOptions):
        """Options of Flume's ``syslogudp``."""

        port: int | None = option(None, least=0, most=65535, doc=_PORT)
        keep_fields: tuple[str, ...] = option(("none",), doc=_KEEP)
        client_ip_header: str | None = option(None, flume="clientIPHeader", doc="header for the sender's address")

        def __post_init__(self) -> None:
            kept(self.keep_fields)
            UdpOptions.__post_init__(self)

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """Drop the maximum size, too: a read takes any datagram whole."""
            return without_needless(_translated(texts), ("maxsize",))

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__(options, options.port, context)
        self._header = options.client_ip_header
        self._parser = SyslogParser(kept(options.keep_fields), context.clock)

    def _batches(self, datagrams: Sequence[Datagram]) -> list[EventBatch]:
        plain = [(data.rstrip(b"\r\n\0"), peer) for data, peer in datagrams]
        full = [(message, peer) for message, peer in plain if message.strip()]
        if not full:
            return []
        columns = {} if self._header is None else {self._header: [peer for _, peer in full]}
        return [self._parser.batch([message for message, _ in full], columns=columns)]
