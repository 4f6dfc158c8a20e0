"""Events of Flume's Thrift sinks and clients, over TCP, with TLS or without. Source: Flume's ``ThriftSource``.

A call is one batch: ``OK`` says that every required channel has committed it. While a channel is full the answer is
``FAILED``, and whoever calls tries again. Calls of the compact protocol and of the binary one are understood, in
frames; each peer is answered in its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...errors import ChannelError
from ...loggers import get_logger
from ..batch import EventBatch, batches_of
from ..interfaces import Context, Outlet, Stop
from ..options import option
from .http_requests import Budget, one_at_a_time
from .listening import Connection, TcpOptions, TcpServer

if TYPE_CHECKING:
    from ..protocols.thrift import Status

_log = get_logger("producer.agent.source.thrift")

_PIECE = 1 << 16


class ThriftSource:
    """See the module."""

    needs: ClassVar = {"thrift": "thrift"}

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(TcpOptions):
        """Flume's ``thrift``'s, and bounds."""

        port: int = option(least=0, most=65535, doc="to listen on; 0 for any free one")
        max_frame: int = option(16 << 20, least=1024, doc="bytes of a call")
        max_memory: int = option(128 << 20, least=1024, doc="bytes of all calls together")
        frame_timeout: float = option(60.0, least=0.001, doc="seconds that a call may take to come")
        put_timeout: float | None = option(
            None, least=0, doc="seconds to wait for room in a channel; empty for the channels' keep_alive"
        )

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """Connections have threads, and both protocols are understood."""
            return {name: value for name, value in texts.items() if name not in ("threads", "protocol")}

        def holds(self) -> int:
            """Bytes at most."""
            return self.max_memory

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._counters = options, context.counters
        self._budget = Budget(options.max_memory)
        self.server = TcpServer(options, [options.port], context, self._serve)

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """See :class:`~..interfaces.Source`."""
        self._outlet, self._stop = outlet, stop
        self.server.run(stop)

    def _serve(self, connection: Connection) -> None:
        from ..protocols.thrift import HEADER_BYTES, BadCallError, size_of  # noqa: PLC0415  # thrift is an extra

        while not self._stop.is_set():
            first = connection.read(HEADER_BYTES)
            if not first:
                return
            until = time.monotonic() + self._options.frame_timeout
            size = size_of(first + _exactly(connection, HEADER_BYTES - len(first), until))
            if size > self._options.max_frame or not self._budget.take(size):
                self._counters.add(EventReadFail=1)
                _log.warning("a connection of %s ends: a call of %d bytes is too much", connection.peer, size)
                return
            try:
                self._handle(connection, _exactly(connection, size, until))
            except BadCallError as error:
                self._counters.add(EventReadFail=1)
                _log.warning("a connection of %s ends: %s", connection.peer, error)
                return
            finally:
                self._budget.give(size)

    def _handle(self, connection: Connection, frame: bytes) -> None:
        from ..protocols.thrift import answer, read_call  # noqa: PLC0415

        with one_at_a_time:
            call = read_call(frame)
            batches = list(batches_of(call.events or ()))
        connection.send(answer(call, self._put(connection, batches)))

    def _put(self, connection: Connection, batches: Sequence[EventBatch]) -> Status:
        from ..protocols.thrift import Status  # noqa: PLC0415

        try:
            for batch in batches:
                self._outlet.put(batch, self._options.put_timeout)
        except ChannelError as error:
            _log.info("a call of %s is put off: %s", connection.peer, error)
            return Status.FAILED
        return Status.OK


def _exactly(connection: Connection, size: int, until: float) -> bytes:
    """So many bytes.

    :raises OSError: they do not come.
    """
    pieces = []
    while size:
        data = connection.read(min(size, _PIECE), until)
        if not data:
            raise ConnectionError("it went away within a call")
        pieces.append(data)
        size -= len(data)
    return b"".join(pieces)
