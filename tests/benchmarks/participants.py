"""Run the processes of a case: the null server, a broker if a client needs it, and the clients."""

import socket
from contextlib import ExitStack

from .cases import Run
from .peers import Client, address_of, broker
from .server import null_server


class Participants(ExitStack):
    """The processes of a case: each starts at its first use and ends with the block."""

    def __init__(self) -> None:
        super().__init__()
        self._clients: dict[str, Client] = {}
        self._broker = ""
        self.port = self.enter_context(null_server())

    def client(self, name: str, run: Run) -> Client:
        """Return the process of that name, which executes the run's client."""
        if name not in self._clients:
            self._clients[name] = self.enter_context(Client(run.client))
        return self._clients[name]

    def address(self, run: Run) -> str:
        if run.way == "dead":
            return self._nowhere()
        if address_of(run.client) == "kafka":
            self._broker = self._broker or self.enter_context(broker())
            return self._broker
        return f"127.0.0.1:{self.port}"

    def _nowhere(self) -> str:
        """Return the address of a reserved port without a listener: connections are refused."""
        reserved = self.enter_context(socket.socket())
        reserved.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{reserved.getsockname()[1]}"
