"""A client of a running agent's monitoring, for ``producer agent top`` and ``tap``."""

from __future__ import annotations

import argparse
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..agent.config import read_toml
from ..agent.monitoring import DEFAULT_PORT, address_of
from ..model.errors import ProducerError
from ..text.addresses import bracketed
from ..text.printable import shown
from .agent_trial import UNSET
from .profiles import UsageError

#: Seconds for an answer, and maximum bytes of it.
_PATIENCE, _MOST_BYTES = 5.0, 16 << 20
#: Addresses of all interfaces, and the loopback address that reaches them.
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # it connects to them


class AgentAwayError(ProducerError):
    """Raised when no agent answers at the address, or it refuses the request."""


class AgentClient:
    """A client of one agent's monitoring.

    :ivar where: its address, for messages.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = _LOOPBACK.get(host, host), port
        self.where = f"{bracketed(host)}:{port}"

    def status(self) -> dict[str, Any]:
        """Return the figures of ``/status.json``.

        :raises AgentAwayError: there is no such answer.
        """
        with self.answer("/status.json") as answer:
            try:
                found = json.loads(answer.read(_MOST_BYTES))
            except ValueError as error:
                raise AgentAwayError(f"{self.where} is not the monitoring of an agent") from error
        if not isinstance(found, dict) or "sources" not in found:
            raise AgentAwayError(f"{self.where} is not the monitoring of an agent")
        return found

    @contextmanager
    def answer(self, target: str) -> Iterator[http.client.HTTPResponse]:
        """Request a page; the block reads the answer.

        :raises AgentAwayError: the agent does not answer, or refuses.
        """
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_PATIENCE)
        try:
            connection.request("GET", target)
            with connection.getresponse() as answer:
                if answer.status != 200:
                    raise AgentAwayError(f"{self.where}: {shown(answer.read(2000).decode(errors='replace').strip())}")
                yield answer
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise AgentAwayError(f"no agent answers at {self.where}: {why}") from error
        finally:
            connection.close()


def client_of(args: argparse.Namespace) -> AgentClient:
    """Return the client of the agent that ``--monitoring`` or ``--config`` names.

    :raises UsageError: the address is invalid, or the file has none.
    :raises AgentConfigError: the file cannot be read.
    """
    address, named = args.monitoring, "--monitoring"
    if not address and args.config:
        address, named = read_toml(Path(args.config), unset=UNSET).monitoring, f"monitoring in {args.config}"
        if not address:
            raise UsageError(f"{args.config} has no monitoring: name its address by --monitoring HOST:PORT")
    try:
        return AgentClient(*address_of(address or str(DEFAULT_PORT)))
    except ValueError as error:
        raise UsageError(f"{named} {error}") from error
