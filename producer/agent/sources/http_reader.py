"""RequestReader: reads requests of HTTP/1.1 within limits of size, of time, and of the memory of all requests."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

import h11

from ...wire.http_framing import ServerConnection, answer
from .budget import Holding
from .http_requests import Limits, Request, RequestError, refusing
from .listening import Connection
from .unpacking import PACKINGS, UnpackingError, unpacked

#: Maximum bytes of a request before its body, and of the trailers after it.
_LONGEST_HEAD = 1 << 15
_PIECE = 1 << 16
#: Headers that are kept; others are dropped.
_WANTED = frozenset((b"authorization", b"content-encoding", b"content-length", b"content-type", b"transfer-encoding"))
#: Maximum characters of an error in an answer.
_MOST_SHOWN = 200


class RequestReader:
    """Reader of the requests of one connection, parsed by h11; it also sends the answers."""

    def __init__(self, connection: Connection, limits: Limits) -> None:
        self._connection, self._limits = connection, limits
        self._http = ServerConnection(_LONGEST_HEAD)
        self._method = ""
        self._until: float | None = None

    def head(self) -> Request | None:
        """Read the next request, up to its headers; return None at the end.

        :raises RequestError: the request is invalid or not supported.
        """
        self._method = ""
        self._until = self._deadline() if self._http.trailing_data[0] else None
        event = self._event()
        if not isinstance(event, h11.Request):
            return None
        self._method, target = event.method.decode("ascii"), event.target.decode("ascii")
        try:
            urlsplit(target)
        except ValueError as error:
            raise RequestError(400, f"invalid target: {error}") from error
        held = Holding(self._limits.budget, self._connection.peer)
        return Request(self._method, target, _wanted(event.headers), held)

    def body(self, request: Request) -> bytes:
        """Read and unpack the body of a request. The caller always releases ``request.held`` afterwards.

        :raises RequestError: the body is too large, incomplete, in an unknown encoding, or no memory is free for it.
        """
        packing = request.headers.get("content-encoding", "identity").lower()
        if packing not in ("identity", *PACKINGS):
            raise RequestError(415, f"unknown Content-Encoding {packing[:50]!r}; supported: {', '.join(PACKINGS)}")
        self._check_length(request)
        if self._http.they_are_waiting_for_100_continue:
            self._connection.send(
                self._http.send(h11.InformationalResponse(status_code=100, headers=[], reason="Continue"))
            )
        pieces = self._pieces()
        if packing == "identity":
            return self._limits.collected(request, pieces)
        with refusing(UnpackingError, prefix="the body cannot be unpacked: "):
            return self._limits.collected(request, unpacked(packing, pieces))

    def answer(self, status: int, headers: Iterable[tuple[str, str]], body: bytes, *, ends: bool = False) -> bool:
        """Send an answer. It ends the connection if the request was not read to its end.

        :returns: True if another request may follow.
        """
        whole = self._http.their_state not in (h11.IDLE, h11.SEND_BODY, h11.ERROR)
        last = [("Connection", "close")] if ends or not whole else []
        self._connection.send(
            answer(self._http, status, [*headers, *last], body, head=self._method == "HEAD"),
        )
        keeps = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        if keeps:
            self._http.start_next_cycle()
        return keeps

    def _check_length(self, request: Request) -> None:
        length = request.headers.get("content-length")
        if length is not None:
            self._limits.check(int(length))
        elif "transfer-encoding" not in request.headers:
            raise RequestError(411, "Content-Length is missing")

    def _pieces(self) -> Iterator[bytes]:
        """Yield the body as it was sent."""
        size = 0
        while isinstance(event := self._event(), h11.Data):
            size += len(event.data)
            self._limits.check(size)
            yield event.data

    def _event(self) -> Any:
        """Return the next part of the request.

        :raises RequestError: it is not HTTP/1.1.
        """
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                size = _LONGEST_HEAD if self._http.their_state is h11.IDLE else _PIECE
                data = self._connection.read(size, self._until)
                self._until = self._until or self._deadline()
                self._http.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise RequestError(error.error_status_hint, str(error)[:_MOST_SHOWN]) from error
        return event

    def _deadline(self) -> float:
        return time.monotonic() + self._limits.seconds


def _wanted(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers that are kept; repeated ones are joined by commas."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name in _WANTED:
            key, text = name.decode("ascii"), value.decode("latin-1")
            found[key] = f"{found[key]}, {text}" if key in found else text
    return found
