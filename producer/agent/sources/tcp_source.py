"""TcpSource: the base class of sources that serve TCP connections."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ...runtime.clock import Stop
from ..events.interfaces import Context, Outlet
from .intake import Intake
from .listening import Connection, TcpOptions, TcpServer


class TcpSource(ABC):
    """A source that serves each connection in a thread of its own.

    :param ports: the ports to listen on; 0 for any free one.
    :ivar server: the listening server.
    :ivar listening: set once the server listens.
    """

    endless = True

    def __init__(self, options: TcpOptions, ports: Sequence[int], context: Context) -> None:
        self._intake = Intake(context)
        self.server = TcpServer(options, ports, context, self._serve)
        self.listening = self.server.listening

    def run(self, outlet: Outlet, stop: Stop) -> None:
        self._outlet, self._stop = outlet, stop
        self.server.run(stop)

    @abstractmethod
    def _serve(self, connection: Connection) -> None:
        """Serve a connection until it ends."""
