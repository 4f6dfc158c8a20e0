"""One connection: uvicorn's HTTP/1.1 protocol with the manners that a server under attack needs.

Beside what uvicorn does, it

* turns a connection away when there are too many already;
* gives a request a bounded time to arrive whole, so that a client that sends a byte a second holds nothing for long;
* gives an answer a bounded time to be taken, so that a client that does not read holds nothing for long either;
* keeps an idle connection for any number of seconds, and stays with HTTP/1.1 whatever a client would rather speak;
* reads little at once, so that many connections together hold little before anybody looks at what they send;
* answers bytes that are not HTTP, and requests that end too early, in the JSON form that clients of LogHub read, and
  lets them read it: a connection that is closed while bytes arrive is reset, and its client may lose the answer;
* still answers a client that has closed its sending side after a whole request, and finds out whether it has closed
  both sides: that looks the same until it is sent something;
* lets the application reach the connection, through ``scope["state"]``, for faults that no HTTP server would commit by
  itself.
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

#: Bytes that are read from a socket at once.
_READ_BYTES = 64 * 1024
#: Bytes of a request before its body.
_MOST_HEAD_BYTES = 16 * 1024
#: Seconds in which a client that was refused can end what it was sending, and read why.
_LINGER_SECONDS = 2.0
#: How often it is looked whether a client that has closed its sending side still waits for a long answer.
_ASK_SECONDS = 0.3
#: What any client passes over that waits for an answer.
_GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"


class LogHubConnection(H11Protocol):
    """One client's connection; made by uvicorn."""

    #: The limits of the server. Set by a subclass for one server.
    limits = Limits()

    _receive_timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None
    _linger_timer: asyncio.TimerHandle | None = None
    _ask_timer: asyncio.TimerHandle | None = None
    _half_closed = False
    _untimed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # TCP's is a full transport
        """Arm the timer: a client that connects and says nothing is not kept either."""
        self.app_state = {**self.app_state, CONNECTION: self}
        transport.max_size = _READ_BYTES  # type: ignore[attr-defined]  # of every transport of asyncio's own loops
        # Whatever the socket does not take at once is a client that is slow to read, and starts the timer for it.
        transport.set_write_buffer_limits(0)
        # uvicorn's option takes whole seconds only, the timer behind it any number of them.
        self.timeout_keep_alive = self.limits.keep_alive_seconds  # type: ignore[assignment]  # see above
        self.conn = ServerConnection(_MOST_HEAD_BYTES)
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._turn_away()
        else:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._disarm()
        self.resume_writing()
        for timer in (self._linger_timer, self._ask_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client is slow to read: its time runs until it has taken everything."""
        super().pause_writing()
        if self._send_timer is None:
            self._send_timer = self.loop.call_later(self.limits.send_seconds, reset, self.transport)

    def resume_writing(self) -> None:
        """The client has taken everything."""
        super().resume_writing()
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _should_upgrade(self) -> bool:
        """Never: a client that would rather speak another protocol is answered in this one, as HTTP wants it. uvicorn
        would say in its log that a library is missing.
        """
        return False

    def data_received(self, data: bytes) -> None:
        """Feed uvicorn; the timer runs exactly while a request is arriving."""
        if self._linger_timer is not None:
            return
        if not self._waits_for_answer():
            self._arm()
        super().data_received(data)
        if self._waits_for_answer() or self._is_idle():
            self._disarm()

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn never keeps a half-closed connection
        """A client that half-closed gets the answer to a whole request, and is told of one that is not whole."""
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
        """What follows: a request that was sent already, the beginning of one, or nothing."""
        super().on_response_complete()
        if self.transport.is_closing() or self._waits_for_answer():
            return
        if self._half_closed:
            self.eof_received()
            self.transport.close()
        elif not self._is_idle():
            self._arm()

    def send_400_response(self, msg: str) -> None:
        """Not HTTP: say so in JSON."""
        self._refuse(error_answer(400, "ParameterInvalid", f"this is not an HTTP/1.1 request: {msg}"))

    def _ask(self, said: bytes) -> None:
        """Find out whether the client is gone: it answers what it is sent with a reset then."""
        self._ask_timer = None
        cycle: RequestResponseCycle | None = self.cycle
        if self.transport.is_closing() or not self._waits_for_answer() or cycle is None or cycle.response_started:
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
            return
        if self.scope["http_version"] == "1.1":
            self.transport.write(said)
            self._ask_timer = self.loop.call_later(_ASK_SECONDS, self._ask, b"")

    def _waits_for_answer(self) -> bool:
        """Whether a whole request has arrived whose answer is not complete."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def _is_idle(self) -> bool:
        return self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """Inside the block the server is what is slow: the time for a request to arrive starts anew behind it."""
        self._disarm()
        self._untimed = True
        try:
            yield
        finally:
            self._untimed = False
            if not (self._waits_for_answer() or self.transport.is_closing()):
                self._arm()

    def _turn_away(self) -> None:
        message = f"{self.limits.connections} clients are connected already: close connections, or try again later"
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
        """Answer without the application and close; a request that the application is reading ends as a disconnect."""
        self._disarm()
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        # A request that was answered before its body had arrived has had its answer.
        answered = cycle is not None and cycle.response_started and (cycle.more_body or not cycle.response_complete)
        if not answered:
            data = serialize(answer, standard_headers(new_request_id(), None, answer))
            pending = cycle is not None and not cycle.response_complete
            asked_for_head = pending and self.scope["method"] == "HEAD"
            self.transport.write(data[: len(data) - len(answer.body)] if asked_for_head else data)
        self._linger()

    def _linger(self) -> None:
        """End the sending side, and close when the client has ended its own, or soon."""
        if self._half_closed or self.transport.is_closing():
            self.transport.close()
        elif self._linger_timer is None:
            self.flow.resume_reading()
            self.transport.write_eof()
            self._linger_timer = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)


def standard_headers(request_id: str, now: float | None, answer: Answer) -> dict[str, str]:
    """The headers that every answer has. ``now`` is the server's time, Unix seconds; None for the machine's."""
    return {
        "Server": "loghub-embedded",
        "Date": formatdate(now, usegmt=True),
        "x-log-requestid": request_id,
        "Content-Length": str(len(answer.body)),
        **answer.headers,
    }


def serialize(answer: Answer, headers: dict[str, str]) -> bytes:
    """An answer as its bytes on the wire, after which the connection closes."""
    reason = STATUS_PHRASES.get(answer.status, b"").decode()
    lines = [f"HTTP/1.1 {answer.status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\n").encode("latin-1") + answer.body


def reset(transport: Any) -> None:
    """Close a connection so that the peer sees a reset, not an end."""
    connection = transport.get_extra_info("socket")
    if connection is not None and not transport.is_closing():
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
