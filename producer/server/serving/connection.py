"""One connection: uvicorn's HTTP/1.1 protocol, hardened against slow and hostile clients.

Beyond uvicorn, it

* refuses a connection when there are too many;
* bounds the time for a request to arrive whole, so that a client that sends a byte a second holds nothing for long;
* bounds the time for an answer to be read, so that a client that does not read holds nothing for long;
* keeps an idle connection for any number of seconds, and ignores requests to upgrade from HTTP/1.1;
* reads little at once, so that many connections together hold little before their requests are checked;
* answers invalid HTTP, and requests that end too early, in LogHub's JSON form. It then lingers: closing a connection
  while bytes arrive resets it, and the client may lose the answer;
* answers a client that has half-closed its connection after a whole request, and probes whether the client has closed
  both sides, which looks the same until it gets data;
* is reachable by the application through ``scope["state"]``, for faults that no HTTP server would commit.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol, RequestResponseCycle

from ...wire.http_framing import ServerConnection
from ..limits import Limits
from ..messages import Answer, error_answer, new_request_id

CONNECTION = "loghub.connection"

#: Maximum bytes read from a socket at once.
_READ_BYTES = 64 * 1024
#: Maximum bytes of a request before its body.
_MOST_HEAD_BYTES = 16 * 1024
#: Seconds for a refused client to end its sending and to read the refusal.
_LINGER_SECONDS = 2.0
#: Seconds between probes of a half-closed client that waits for its answer.
_ASK_SECONDS = 0.3
#: Bytes that any waiting client skips.
_GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"


class LogHubConnection(H11Protocol):
    """One client's connection; created by uvicorn."""

    #: The limits of the server; set by a subclass for each server.
    limits = Limits()

    _receive_timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None
    _linger_timer: asyncio.TimerHandle | None = None
    _ask_timer: asyncio.TimerHandle | None = None
    _half_closed = False
    _untimed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # TCP's is a full transport
        """Start the timer of a request: a client that connects and sends nothing is dropped, too."""
        self.app_state = {**self.app_state, CONNECTION: self}
        transport.max_size = _READ_BYTES  # type: ignore[attr-defined]  # of every transport of asyncio's own loops
        # Bytes that the socket does not take at once show a slow reader, and start the timer for it.
        transport.set_write_buffer_limits(0)
        # uvicorn's option takes whole seconds only; the timer behind it takes any number.
        self.timeout_keep_alive = self.limits.keep_alive_seconds  # type: ignore[assignment]  # see above
        self.conn = ServerConnection(_MOST_HEAD_BYTES)
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._turn_away()
        else:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self.resume_writing()
        for timer in (self._linger_timer, self._ask_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the timer of a slow reader; it runs until the client has read everything."""
        super().pause_writing()
        if self._send_timer is None:
            self._send_timer = self.loop.call_later(self.limits.send_seconds, reset, self.transport)

    def resume_writing(self) -> None:
        """Stop the timer of a slow reader."""
        super().resume_writing()
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _should_upgrade(self) -> bool:
        """Ignore a request to upgrade, as HTTP permits. uvicorn would log that a library is missing."""
        return False

    def data_received(self, data: bytes) -> None:
        """Feed uvicorn; the timer runs only while a request is arriving."""
        if self._linger_timer is not None:
            return
        if not self._waits_for_answer():
            self._arm()
        super().data_received(data)
        if self._waits_for_answer() or self._is_idle():
            self._disarm()

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn never keeps a half-closed connection
        """Answer the whole request of a half-closed client, or refuse an incomplete one."""
        self._half_closed = True
        if self._linger_timer is not None:
            return False
        if self._waits_for_answer():
            if self._ask_timer is None:
                self._ask_timer = self.loop.call_later(_ASK_SECONDS, self._ask, _GO_ON)
            return True
        if not self._is_idle():
            self._refuse(error_answer(400, "PostBodyInvalid", "the connection was closed before the request was whole"))
        return False

    def on_response_complete(self) -> None:
        """Start the timer if the next request has begun to arrive."""
        super().on_response_complete()
        if self.transport.is_closing() or self._waits_for_answer():
            return
        if self._half_closed:
            self.eof_received()
            self.transport.close()
        elif not self._is_idle():
            self._arm()

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP in JSON."""
        self._refuse(error_answer(400, "ParameterInvalid", f"this is not an HTTP/1.1 request: {msg}"))

    def _ask(self, probe: bytes) -> None:
        """Probe a half-closed client: one that has closed both sides answers data with a reset."""
        self._ask_timer = None
        cycle: RequestResponseCycle | None = self.cycle
        if self.transport.is_closing() or not self._waits_for_answer() or cycle is None or cycle.response_started:
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
            return
        if self.scope["http_version"] == "1.1":
            self.transport.write(probe)
            self._ask_timer = self.loop.call_later(_ASK_SECONDS, self._ask, b"")

    def _waits_for_answer(self) -> bool:
        """Return True if a whole request has arrived and its answer is not complete."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def _is_idle(self) -> bool:
        return self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """Stop the timer inside the block, where the client waits for the server; it restarts after the block."""
        self._disarm()
        self._untimed = True
        try:
            yield
        finally:
            self._untimed = False
            if not (self._waits_for_answer() or self.transport.is_closing()):
                self._arm()

    def _turn_away(self) -> None:
        message = f"{self.limits.connections} clients are connected, the limit: close some, or try again later"
        self._refuse(error_answer(503, "ServerBusy", message))

    def _arm(self) -> None:
        if self._receive_timer is None and not self._untimed and self._linger_timer is None:
            self._receive_timer = self.loop.call_later(self.limits.receive_seconds, self._too_slow)

    def _disarm(self) -> None:
        if self._receive_timer is not None:
            self._receive_timer.cancel()
            self._receive_timer = None

    def _too_slow(self) -> None:
        self._receive_timer = None
        if self._is_idle():
            self.transport.close()
            return
        message = f"the request did not arrive whole within {self.limits.receive_seconds:g} s"
        self._refuse(error_answer(500, "RequestTimeout", message))

    def _refuse(self, answer: Answer) -> None:
        """Answer without the application and close; a request that the application is reading sees a disconnect."""
        self._disarm()
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        # A request answered before its body had arrived gets no second answer.
        answered = cycle is not None and cycle.response_started and (cycle.more_body or not cycle.response_complete)
        if not answered:
            data = serialize(answer, standard_headers(new_request_id(), None, answer))
            pending = cycle is not None and not cycle.response_complete
            asked_for_head = pending and self.scope["method"] == "HEAD"
            self.transport.write(data[: len(data) - len(answer.body)] if asked_for_head else data)
        self._linger()

    def _linger(self) -> None:
        """End the sending side, and close when the client has ended its own or the time is over."""
        if self._half_closed or self.transport.is_closing():
            self.transport.close()
        elif self._linger_timer is None:
            self.flow.resume_reading()
            self.transport.write_eof()
            self._linger_timer = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)


def standard_headers(request_id: str, now: float | None, answer: Answer) -> dict[str, str]:
    """Return the headers of every answer.

    :param now: the server's time, Unix seconds; None for the machine's.
    """
    return {
        "Server": "loghub-embedded",
        "Date": formatdate(now, usegmt=True),
        "x-log-requestid": request_id,
        "Content-Length": str(len(answer.body)),
        **answer.headers,
    }


def serialize(answer: Answer, headers: dict[str, str]) -> bytes:
    """Return the bytes of an answer after which the connection closes."""
    reason = STATUS_PHRASES.get(answer.status, b"").decode()
    lines = [f"HTTP/1.1 {answer.status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\n").encode("latin-1") + answer.body


def reset(transport: Any) -> None:
    """Close a connection with a reset instead of an end."""
    connection = transport.get_extra_info("socket")
    if connection is not None and not transport.is_closing():
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
