"""UdpSource: the base of sources of datagrams: one thread that batches them as they arrive.

While a channel is full nothing is read. Datagrams that do not fit into the system's buffer are lost, as with any
receiver of datagrams.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from sys import getsizeof

from ...model.options import option
from ...runtime.clock import Stop
from ..events.batch import EventBatch
from ..events.interfaces import Context, Outlet
from .intake import Intake
from .listening import ListenOptions, address_of, listening, woken_by

#: Maximum bytes of a datagram.
_LONGEST = 65_536
#: Bytes of the datagrams put at once, roughly.
_MOST_BYTES = 1 << 20

#: The content, and the sender's address.
Datagram = tuple[bytes, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class UdpOptions(ListenOptions):
    """Options of all sources of datagrams."""

    batch_size: int = option(1000, least=1, doc="maximum number of datagrams put at once")
    receive_buffer: int = option(
        4 << 20, least=0, unit="bytes", doc="bytes of the system's receive buffer; 0 for its default"
    )


class UdpSource(ABC):
    """Source of datagrams.

    :param port: the port to listen on; None for a Unix socket.
    :ivar addresses: the addresses listened on, once :attr:`listening` is set.
    """

    endless = True

    def __init__(self, options: UdpOptions, port: int | None, context: Context) -> None:
        self._udp, self._port, self._intake = options, port, Intake(context)
        self.addresses: list[tuple[str, int]] = []
        self.listening = threading.Event()

    @abstractmethod
    def _batches(self, datagrams: Sequence[Datagram]) -> Iterable[EventBatch]:
        """Return the events of datagrams."""

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """:raises OSError: the address is not available."""
        with (
            listening(self._udp, self._port or 0, socket.SOCK_DGRAM) as listener,
            selectors.DefaultSelector() as selector,
            contextlib.ExitStack() as waking,
        ):
            if self._udp.receive_buffer:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._udp.receive_buffer)
            selector.register(listener, selectors.EVENT_READ)
            self.addresses.append(address_of(listener))
            self.listening.set()
            waking.enter_context(woken_by(stop, selector))
            while not stop.is_set():
                if any(key.data is None for key, _ in selector.select()):
                    for batch in self._batches(self._read(listener)):
                        if batch.count:
                            self._intake.put_or_lose(outlet, batch, stop)

    def _read(self, listener: socket.socket) -> list[Datagram]:
        found: list[Datagram] = []
        left = _MOST_BYTES
        with contextlib.suppress(BlockingIOError):
            while len(found) < self._udp.batch_size and left > 0:
                data, address = listener.recvfrom(_LONGEST)
                left -= getsizeof(data)
                found.append((data, "unix" if listener.family == socket.AF_UNIX else address[0]))
        return found
