"""Lines over TCP, each acknowledged with ``OK``, and datagrams. Modelled on Flume's netcat sources.

The lines of one read are one batch. While a channel is full the connection is not read, so the peer waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...model.options import option
from ..config.flume_keys import without_needless
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .datagrams import Datagram, UdpOptions, UdpSource
from .listening import Connection, TcpOptions, TcpSource


def _without_encoding(texts: Mapping[str, str]) -> dict[str, str]:
    """Drop the option of an encoding that leaves bodies unchanged."""
    kept = without_needless(texts)
    return {k: v for k, v in kept.items() if k not in ("encoding",) or v.lower() not in ("utf-8", "utf8")}


class NetcatSource(TcpSource):
    """Source of lines over TCP, each acknowledged with ``OK``. Modelled on Flume's ``NetcatSource``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(TcpOptions):
        """Options of Flume's ``netcat``."""

        port: int | None = option(None, least=0, most=65535, doc="port to listen on; 0 for any free one")
        max_line_length: int = option(
            1 << 16,
            flume="max-line-length",
            least=2,
            unit="bytes",
            doc="maximum bytes of a line with its end; a longer one ends the connection",
        )
        delimiter: str = option("\n", least=1, doc="end of a line, such as ; or \\u0000 for a NUL")
        ack_every_event: bool = option(True, flume="ack-every-event", doc="answer OK for each committed line")

        translate_flume = staticmethod(_without_encoding)

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__(options, [options.port or 0], context)
        self._options, self._end = options, options.delimiter.encode()

    def _serve(self, connection: Connection) -> None:
        rest = bytearray()
        while self._intake.wait_for_memory(self._outlet, self._stop) and (data := connection.read()):
            rest += data
            if rest.find(self._end, max(0, len(rest) - len(data) - len(self._end) + 1)) >= 0:
                block = bytes(rest[: self._whole(rest)])
                if not self._take(connection, block):
                    return
                del rest[: len(block)]
            if len(rest) >= self._options.max_line_length:
                self._refuse(connection)
                return
        if rest:
            self._take(connection, bytes(rest) + self._end)

    def _whole(self, data: bytearray) -> int:
        """Return the bytes up to the last end. An end may overlap another, as in ``|||``: the first one counts."""
        if len(self._end) == 1:
            return data.rfind(self._end) + 1
        return len(data) - len(data.split(self._end)[-1])

    def _take(self, connection: Connection, whole: bytes) -> bool:
        """Put lines, and acknowledge them; return False if the connection ends."""
        fitting = self._fitting(whole)
        batch = self._batch(whole[:fitting])
        if batch.count:
            if not self._intake.put_until(self._outlet, batch, self._stop):
                return False
            if self._options.ack_every_event:
                connection.send(b"OK\n" * batch.count)
        if fitting < len(whole):
            self._refuse(connection)
        return fitting == len(whole)

    def _batch(self, block: bytes) -> EventBatch:
        return EventBatch.of_lines(block) if self._end == b"\n" else EventBatch.of_bodies(block.split(self._end)[:-1])

    def _fitting(self, block: bytes) -> int:
        """Return the bytes of the lines before the first one that is too long."""
        most = self._options.max_line_length
        if len(block) <= most:
            return len(block)
        at = 0
        for line in block.split(self._end)[:-1]:
            if len(line) + len(self._end) > most:
                return at
            at += len(line) + len(self._end)
        return len(block)

    def _refuse(self, connection: Connection) -> None:
        most = self._options.max_line_length
        connection.send(b"FAILED: Event exceeds the maximum length (%d chars, including newline)\n" % most)


class NetcatUdpSource(UdpSource):
    """Source of datagrams, each an event without its line end. Modelled on Flume's ``NetcatUdpSource``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(UdpOptions):
        """Options of Flume's ``netcatudp``."""

        port: int | None = option(None, least=0, most=65535, doc="port to listen on; 0 for any free one")
        remote_address_header: str | None = option(None, doc="header for the sender's address")

        translate_flume = staticmethod(_without_encoding)

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__(options, options.port, context)
        self._header = options.remote_address_header

    def _batches(self, datagrams: Sequence[Datagram]) -> list[EventBatch]:
        bodies = [data.removesuffix(b"\n").removesuffix(b"\r") for data, _ in datagrams]
        columns = {} if self._header is None else {self._header: [peer for _, peer in datagrams]}
        return [EventBatch.of_bodies(bodies, {}, columns)]
