"""Send events to Flume's Thrift source, or to an agent's source ``thrift``. Modelled on Flume's ``ThriftSink``.

A delivery is sent in calls of ``appendBatch``, ``batch_size`` events each. ``OK`` means that the receiver's channels
have committed the call. If a call fails, or is not answered within ``request_timeout``, the next delivery continues
with it, so its events may be duplicated. After a restart, or in another sink of a group, the whole begun batch is sent
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, ClassVar

from ...model.options import option
from ...runtime.clock import Deadline
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .calls import CallSink, CallSinkOptions, exactly, flumes_keys
from .peers import Peer

if TYPE_CHECKING:
    from ..protocols.thrift import Status

_MOST_ANSWER = 1 << 20


class ThriftSink(CallSink):
    """Sink to Flume's Thrift source, or an agent's source ``thrift``. Modelled on Flume's ``ThriftSink``."""

    needs: ClassVar = {"thrift": "thrift"}

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(CallSinkOptions):
        """Options of Flume's ``thrift``."""

        protocol: str = option("compact", doc="encoding of calls", choices=("compact", "binary"))
        connection_reset_interval: float = option(
            0.0, flume="connection-reset-interval", least=0, doc="seconds after which to reconnect; 0 for never"
        )

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """Drop the number of connections. Flume's documentation and code name the reset option differently."""
            found = flumes_keys(texts, ("maxConnections",))
            if (reset := found.pop("reset-connection-interval", None)) is not None:
                found.setdefault("connection-reset-interval", reset)
            return found

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__(options, context, options.connection_reset_interval)
        self._protocol = options.protocol
        #: The headers of the last counted event, and their size.
        self._headers: Mapping[str, str] = {}
        self._head = 0

    def _events(self, batch: EventBatch, bodies: Sequence[bytes]) -> Iterable[tuple[Mapping[str, str], bytes]]:
        """Return headers and bodies; headers that all events share are one object."""
        return zip(batch.headers() if batch.columns else repeat(batch.shared), bodies, strict=False)

    def _size(self, event: tuple[Mapping[str, str], bytes], body: bytes) -> int:
        headers = event[0]
        if headers is not self._headers:
            self._headers, self._head = headers, sum(map(len, chain(*headers.items())))
        return self._head + len(body)

    def _ask(self, line: Peer, events: Sequence[tuple[Mapping[str, str], bytes]], deadline: Deadline) -> Status:
        from ..protocols.thrift import batch_call, read_answer  # thrift is an extra

        number = self._next_number()
        line.send(batch_call(self._protocol, number, events), deadline)
        return read_answer(self._protocol, number, _frame(line, deadline))


def _frame(peer: Peer, deadline: Deadline) -> bytes:
    """Read the next frame."""
    from ..protocols.thrift import HEADER_BYTES, size_of

    size = size_of(exactly(peer, HEADER_BYTES, deadline))
    if size > _MOST_ANSWER:
        raise ValueError(f"the answer is not valid Thrift: it has {size} bytes")
    return exactly(peer, size, deadline)
