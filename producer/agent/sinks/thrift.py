"""Sends events to Flume's Thrift source, or to the source ``thrift`` of an agent. Source: Flume's ``ThriftSink``.

A delivery is one call of ``appendBatch``, and ``OK`` says that the receiver's channels have committed it. An answer
that does not come within ``request_timeout`` is a failure, and the events are sent again: they may then be there twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import ClassVar

from ...clock import NO_DEADLINE, Deadline
from ..batch import EventBatch
from ..interfaces import Context, SinkError
from ..options import option
from .peers import Peer, PeerOptions

_MOST_ANSWER = 1 << 20


class ThriftSink:
    """See the module."""

    needs: ClassVar = {"thrift": "thrift"}

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(PeerOptions):
        """Flume's ``thrift``'s."""

        hostname: str = option(doc="the receiver")
        port: int = option(least=1, most=65535, doc="its port")
        batch_size: int = option(10_000, flume="batch-size", least=1, doc="events of a call, at most")
        most_bytes: int = option(4 << 20, least=1, doc="bytes of bodies, likewise; Flume takes frames of up to 16 MB")
        connect_timeout: float = option(20.0, flume="connect-timeout", scale=0.001, least=0.001, doc="seconds")
        request_timeout: float = option(
            20.0, flume="request-timeout", scale=0.001, least=0.001, doc="seconds that a delivery may take"
        )
        protocol: str = option("compact", doc="of calls", choices=("compact", "binary"))
        connection_reset_interval: float = option(
            0.0, flume="connection-reset-interval", least=0, doc="seconds after which to connect anew; 0 for never"
        )

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """Its batches are larger here; how many connections it keeps does not matter."""
            needless = ("batch-size", "maxConnections")
            return {name: value for name, value in texts.items() if name not in needless}

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._clock, self._counters = options, context.clock, context.counters
        self.most_events, self.most_bytes = options.batch_size, options.most_bytes
        self._tls = options.context()
        self._peer: Peer | None = None
        self._end = NO_DEADLINE
        self._since = 0.0
        self._number = 0

    def write(self, batches: Sequence[EventBatch]) -> None:
        """See :class:`~..interfaces.Sink`."""
        from ..protocols.thrift import Status, batch_call, read_answer  # noqa: PLC0415  # thrift is an extra

        events = [event for batch in batches for event in _events(batch)]
        if not events:
            return
        self._number = (self._number + 1) % (1 << 31)
        kind, address = self._options.protocol, f"{self._options.hostname}:{self._options.port}"
        call = batch_call(kind, self._number, events)
        try:
            peer, deadline = self._connected(), Deadline.after(self._clock, self._options.request_timeout)
            peer.send(call, deadline)
            status = read_answer(kind, self._number, _frame(peer, deadline))
        except (OSError, ValueError) as error:
            self._counters.add(ConnectionFailedCount=1)
            self.close()
            raise SinkError(f"{address}: {error}") from error
        if status is not Status.OK:
            raise SinkError(f"{address}: it has not taken them: {status.name}")

    def give_up(self, deadline: Deadline) -> None:
        """See :class:`~..interfaces.Sink`."""
        self._end, peer = deadline, self._peer
        if peer is not None:
            peer.hurry(deadline)

    def close(self) -> None:
        """See :class:`~..interfaces.Sink`."""
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()
            self._counters.add(ConnectionClosedCount=1)

    def _connected(self) -> Peer:
        options, now = self._options, self._clock.monotonic()
        old = 0 < options.connection_reset_interval <= now - self._since
        if self._peer is not None and (old or self._peer.is_gone()):
            self.close()
        if self._peer is None:
            self._peer = Peer((options.hostname, options.port), options.connect_timeout, self._tls, self._clock)
            self._peer.hurry(self._end)
            self._peer.shake(Deadline.after(self._clock, options.connect_timeout))
            self._since = now
            self._counters.add(ConnectionCreatedCount=1)
        return self._peer


def _events(batch: EventBatch) -> Iterable[tuple[Mapping[str, str], bytes]]:
    """Headers and bodies; headers that all events share are one object."""
    return batch.events() if batch.columns else zip(repeat(batch.shared), batch.bodies(), strict=False)


def _frame(peer: Peer, deadline: Deadline) -> bytes:
    """The next frame."""
    from ..protocols.thrift import HEADER_BYTES, size_of  # noqa: PLC0415

    size = size_of(_exactly(peer, HEADER_BYTES, deadline))
    if size > _MOST_ANSWER:
        raise ValueError(f"it does not speak this protocol: an answer of {size} bytes")
    return _exactly(peer, size, deadline)


def _exactly(peer: Peer, size: int, deadline: Deadline) -> bytes:
    data = b""
    while len(data) < size:
        data += peer.receive(deadline, size - len(data))
    return data
