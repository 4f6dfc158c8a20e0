"""Sends events to Flume's Thrift source, or to the source ``thrift`` of an agent. Source: Flume's ``ThriftSink``.

A delivery is calls of ``appendBatch``, of ``batch_size`` events each, and ``OK`` says that the receiver's channels have
committed one. If one fails, or its answer does not come within ``request_timeout``, the next delivery goes on with it:
its events may then be there twice. After a restart, or by another sink of a group, the batch that was begun is sent
again whole.
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
    """See the module."""

    needs: ClassVar = {"thrift": "thrift"}

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(CallSinkOptions):
        """Flume's ``thrift``'s."""

        protocol: str = option("compact", doc="of calls", choices=("compact", "binary"))
        connection_reset_interval: float = option(
            0.0, flume="connection-reset-interval", least=0, doc="seconds after which to connect anew; 0 for never"
        )

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """How many connections it keeps does not matter. Its documents and its code name the reset differently."""
            found = flumes_keys(texts, ("maxConnections",))
            if (reset := found.pop("reset-connection-interval", None)) is not None:
                found.setdefault("connection-reset-interval", reset)
            return found

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__(options, context, options.connection_reset_interval)
        self._protocol = options.protocol
        #: Of the last event that was counted, and their size.
        self._headers: Mapping[str, str] = {}
        self._head = 0

    def _events(self, batch: EventBatch, bodies: Sequence[bytes]) -> Iterable[tuple[Mapping[str, str], bytes]]:
        """Headers and bodies; headers that all events share are one object."""
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
    """The next frame."""
    from ..protocols.thrift import HEADER_BYTES, size_of

    size = size_of(exactly(peer, HEADER_BYTES, deadline))
    if size > _MOST_ANSWER:
        raise ValueError(f"it does not speak this protocol: an answer of {size} bytes")
    return exactly(peer, size, deadline)
