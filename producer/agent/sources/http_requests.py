"""Requests of HTTP/1.1, read from strangers: bounded in size, in time, and in the memory of all of them together."""

from __future__ import annotations

import http.client
import io
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from typing import NoReturn
from urllib.parse import parse_qsl, urlsplit

from .budget import Budget, Holding
from .listening import Connection

_LONGEST_LINE = 1 << 14
_LONGEST_HEAD = 1 << 16
_PIECE = 1 << 16
_SIZE_DIGITS = 8

#: Held while a body, or another large message, is taken apart: for that time it is many times as large. No I/O then.
one_at_a_time = threading.Lock()


class RequestError(Exception):
    """A request that is answered with an error.

    :ivar status: of the answer.
    :ivar ends: whether the connection ends, since nobody knows where the next request begins.
    """

    def __init__(self, status: int, message: str, *, ends: bool = True) -> None:
        super().__init__(message)
        self.status, self.ends = status, ends


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may be.

    :ivar body: bytes, packed and unpacked.
    :ivar seconds: from its first byte to its last.
    :ivar budget: of all requests.
    """

    body: int
    seconds: float
    budget: Budget

    def holding(self, peer: str) -> Holding:
        """For a request of a peer."""
        return Holding(self.budget, peer)

    def hold(self, request: Request, size: int, *, came: bool = False) -> None:
        """A request needs so many bytes more, until it is released.

        :param came: they came, and are not what is made of that.
        :raises RequestError: there is no memory for it now, or never.
        """
        if request.held.size + size > self.budget.size:
            raise RequestError(413, f"it takes more than {self.budget.size} bytes of memory (max_memory)")
        if not request.held.take(size, within_share=came):
            raise RequestError(503, "too many requests at a time")


@dataclass(slots=True)
class Request:
    """A request, read up to its body.

    :ivar held: its bytes of the budget.
    :ivar keeps: whether another one may follow on the connection.
    """

    method: str
    target: str
    headers: Message
    held: Holding
    keeps: bool

    @property
    def parameters(self) -> dict[str, str]:
        """Of the query.

        :raises RequestError: the target is none.
        """
        try:
            return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))
        except ValueError as error:
            raise RequestError(400, f"no target: {error}") from error


def _is_target(text: str) -> bool:
    """Whether its path and its query can be told."""
    try:
        urlsplit(text)
    except ValueError:
        return False
    return True


class RequestReader:
    """Reads the requests of one connection."""

    def __init__(self, connection: Connection, limits: Limits) -> None:
        self._connection, self._limits = connection, limits
        self._buffer = bytearray()
        self._until: float | None = None

    def head(self) -> Request | None:
        """The next request, up to its headers; None at the end.

        :raises RequestError: it is none that is understood.
        """
        self._until = None
        if not self._buffer and not self._more():
            return None
        self._until = time.monotonic() + self._limits.seconds
        line = self._line(_LONGEST_LINE).strip() or self._line(_LONGEST_LINE).strip()
        words = line.decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1.") or not _is_target(words[1]):
            raise RequestError(400, "no request of HTTP/1.1")
        headers = self._headers()
        kept = words[2] != "HTTP/1.0" and headers.get("Connection", "").lower() != "close"
        return Request(words[0], words[1], headers, self._limits.holding(self._connection.peer), kept)

    def body(self, request: Request) -> bytes:
        """The body of a request, unpacked. Whoever has read it calls :meth:`release` afterwards, whatever came.

        :raises RequestError: too large, not whole, packed in a way that is not known, or there is no memory for it now.
        """
        if request.headers.get("Expect", "").lower() == "100-continue":
            self._connection.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        packing = request.headers.get("Content-Encoding", "identity").lower()
        if packing not in ("identity", "gzip", "x-gzip"):
            raise RequestError(415, f"a body packed with {packing[:50]!r}; gzip is understood")
        pieces = self._pieces(request)
        if packing != "identity":
            pieces = self._unpacked(pieces)
        found = bytearray()  # not a list: a peer may send byte by byte
        for piece in pieces:
            if len(found) + len(piece) > self._limits.body:
                raise RequestError(413, f"more than {self._limits.body} bytes (max_body)")
            self._limits.hold(request, len(piece), came=True)
            found += piece
        return bytes(found)

    def release(self, request: Request) -> None:
        """Its bytes are needed no more."""
        request.held.keep(0)

    def _pieces(self, request: Request) -> Iterator[bytes]:
        """The body as it was sent."""
        lengths, codings = request.headers.get_all("Content-Length"), request.headers.get_all("Transfer-Encoding")
        if lengths and codings:
            raise RequestError(400, "both a length and chunks")
        if codings:
            if [coding.strip().lower() for coding in codings] != ["chunked"]:
                raise RequestError(501, "a transfer coding other than chunked")
            return self._chunks()
        if not lengths:
            raise RequestError(411, "no length")
        if len(set(lengths)) > 1 or not lengths[0].isdecimal() or not lengths[0].isascii():
            raise RequestError(400, "a length that is none")
        if len(lengths[0]) > 18 or int(lengths[0]) > self._limits.body:
            raise RequestError(413, f"more than {self._limits.body} bytes (max_body)")
        return self._exactly(int(lengths[0]))

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size:
            if not self._buffer and not self._more():
                raise RequestError(400, "a body that is not whole")
            piece = bytes(self._buffer[: min(size, _PIECE)])
            del self._buffer[: len(piece)]
            size -= len(piece)
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        while True:
            digits = self._line(_LONGEST_LINE).partition(b";")[0].strip()
            try:
                size = int(digits, 16) if 0 < len(digits) <= _SIZE_DIGITS and digits.isalnum() else -1
            except ValueError:
                size = -1
            if size < 0:
                raise RequestError(400, "a chunk without a size")
            if size == 0:
                self._headers()
                return
            yield from self._exactly(size)
            if self._line(2).strip():
                raise RequestError(400, "a chunk that is longer than it says")

    def _unpacked(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Of gzip, however many members there are; a piece at a time, whatever a packed one holds."""
        packed, unpacker = 0, zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            for data in pieces:
                packed += len(data)
                if packed > self._limits.body:
                    raise RequestError(413, f"more than {self._limits.body} bytes (max_body)")
                while data:
                    if unpacker.eof:
                        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
                    yield unpacker.decompress(data, _PIECE)
                    data = unpacker.unconsumed_tail or unpacker.unused_data  # noqa: PLW2901  # what is left of it
            while not unpacker.eof:
                piece = unpacker.decompress(b"", _PIECE)
                if not piece:
                    raise RequestError(400, "a packed body that is not whole", ends=False)
                yield piece
        except zlib.error as error:
            raise RequestError(400, f"a body that is no gzip: {error}") from error

    def _headers(self) -> Message:
        lines, size = [], 0
        while (line := self._line(_LONGEST_LINE)).strip(b"\r\n"):
            size += len(line)
            if size > _LONGEST_HEAD:
                raise RequestError(431, "headers that are too large")
            lines.append(line)
        try:
            return http.client.parse_headers(io.BytesIO(b"".join([*lines, b"\r\n"])))
        except http.client.HTTPException as error:
            raise RequestError(431, f"headers that are too many: {error}") from error

    def _line(self, longest: int) -> bytes:
        """A line with its end."""
        while (end := self._buffer.find(b"\n", 0, longest)) < 0:
            if len(self._buffer) >= longest:
                raise RequestError(431 if longest > 2 else 400, "a line that is too long")
            if not self._more():
                self._broken()
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        return line

    def _broken(self) -> NoReturn:
        raise RequestError(400, "a request that is not whole")

    def _more(self) -> bool:
        data = self._connection.read(_PIECE, self._until)
        self._buffer += data
        return bool(data)
