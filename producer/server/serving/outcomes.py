"""Sending of answers, properly or as a fault requires."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

from ..faults import Cut, DripAnswer, HalfAnswer, Outcome, RawAnswer
from ..messages import Answer
from .connection import CONNECTION, LogHubConnection, reset, serialize

#: Bytes of an answer in flight at once.
_SEND_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Wire:
    """The three parts of an ASGI call, to answer one request."""

    scope: Scope
    receive: Receive
    send: Send

    @property
    def connection(self) -> LogHubConnection:
        """Return the connection that carries the request."""
        connection: LogHubConnection = self.scope["state"][CONNECTION]
        return connection

    @property
    def transport(self) -> Any:
        """Return the connection's transport."""
        return self.connection.transport


async def send_answer(wire: Wire, answer: Answer, headers: dict[str, str]) -> None:
    """Send the answer; on return it has left for the client.

    Each part is sent after the one before it has left, so only the request's own lease holds the answer.
    """
    encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await wire.send({"type": "http.response.start", "status": answer.status, "headers": encoded})
    for start in range(0, len(answer.body), _SEND_BYTES):
        part = answer.body[start : start + _SEND_BYTES]
        await wire.send({"type": "http.response.body", "body": part, "more_body": True})
    await wire.send({"type": "http.response.body", "body": b"", "more_body": False})


async def commit(wire: Wire, outcome: Outcome, answer: Answer, headers: dict[str, str]) -> None:
    """Replace the answer as ``outcome`` requires, and close the connection."""
    transport = wire.transport
    if isinstance(outcome, HalfAnswer):
        data = serialize(answer, headers)
        transport.write(data[: int(len(data) * outcome.part)])
    elif isinstance(outcome, RawAnswer):
        transport.write(outcome.data)
    elif isinstance(outcome, DripAnswer):
        await _drip(transport, serialize(answer, headers), outcome.seconds_per_byte)
    if isinstance(outcome, Cut) and outcome.reset:
        reset(transport)
    else:
        transport.close()
    await wait_until_closed(wire)


async def wait_until_closed(wire: Wire) -> None:
    """Wait for the end of the connection, so that uvicorn does not answer by itself.

    The transport is closing already; uvicorn notices a moment later.
    """
    while (await wire.receive())["type"] != "http.disconnect":
        pass


async def _drip(transport: Any, data: bytes, seconds_per_byte: float) -> None:
    for place in range(len(data)):
        if transport.is_closing():
            return
        transport.write(data[place : place + 1])
        await asyncio.sleep(seconds_per_byte)
