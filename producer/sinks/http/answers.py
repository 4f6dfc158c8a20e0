"""Responses, read without Python's e-mail parser, which costs more than all other work on a small response.

A response that arrived completely with the first bytes is parsed in one step. Any other is read line by line, as by
``http.client``: with the same limits for headers and lines, and the same errors. Unlike there, a response that is cut
within its head, or has several lengths or an invalid one, is an error.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from http.client import BadStatusLine, HTTPException, IncompleteRead, LineTooLong, RemoteDisconnected, UnknownProtocol
from typing import Any, NamedTuple

from ...text.plural import counted

#: The maximum bytes of a line, headers of a head, and digits of a length.
_LONGEST_LINE, _MOST_HEADERS, _LONGEST_LENGTH = 65536, 100, 18
#: The maximum number of interim responses: a flood of them would keep the interpreter busy until the attempt's limit.
_MOST_INTERIM = 1000
#: Bytes of one read: more than an acknowledgement has.
FIRST = 16 * 1024
#: The maximum bytes of a body: a server's error has a few hundred.
MOST_OF_AN_ANSWER = 64 * 1024
#: After status 101 the other side uses another protocol: no further response follows.
_INTERIM = frozenset(range(100, 200)) - {HTTPStatus.SWITCHING_PROTOCOLS}
_WITHOUT_BODY = frozenset((HTTPStatus.SWITCHING_PROTOCOLS, HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED))
# A head, without its last end of line, with one line for each header; not an interim response.
_PLAIN_HEAD = re.compile(rb"HTTP/1\.1 ([2-9][0-9][0-9])(?: [^\r\n]*)?((?:\r\n[^\s:][^\r\n:]*:[^\r\n]*)+)")
# Headers, in lower case, with which a response is more than a head and a body of known length.
_UNUSUAL = re.compile(rb"\r\n(?:transfer-encoding:|content-encoding:|connection:(?! keep-alive\r\n))")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?\r?\n", re.DOTALL)


class Headers(Mapping[str, str]):
    """Headers by name, in any case; for a repeated name the first value.

    :param lines: the lines of the head, without the first.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._values: dict[str, list[str]] = {}
        last: list[str] = []
        for line in lines:
            if line[:1] in {" ", "\t"}:  # continues the line before
                if last:
                    last[-1] += " " + line.strip()
                continue
            name, colon, value = line.partition(":")
            if not colon:
                break  # not a header: neither are the following lines
            last = self._values.setdefault(name.lower(), [])
            last.append(value.strip())

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def get_all(self, name: str) -> list[str]:
        """Return every value of a header."""
        return self._values.get(name, [])


class Received(NamedTuple):
    """A response, read as far as needed.

    :ivar body: its first bytes, decompressed.
    :ivar last: True if its connection cannot be used again.
    """

    status: int
    headers: Headers
    body: bytes
    last: bool


class _Head(NamedTuple):
    version: str
    status: int
    reason: str
    headers: Headers

    @property
    def closes(self) -> bool:
        """True if the connection ends after the response."""
        connection = self.headers.get("connection", "").lower()
        if self.version in ("HTTP/1.0", "HTTP/0.9"):
            kept = connection + self.headers.get("proxy-connection", "").lower()
            return "keep-alive" not in kept and not self.headers.get("keep-alive")
        return "close" in connection or self.status == HTTPStatus.SWITCHING_PROTOCOLS


def receive(sock: Any, data: bytes, most: int = MOST_OF_AN_ANSWER) -> Received:
    """Read the response to a request from its socket.

    :param data: bytes that were read before; empty if the connection has ended.
    :param most: the maximum bytes of its body, compressed or not.
    :raises HTTPException: not a response, an incomplete one, or one without a valid length.
    :raises OSError: the connection failed.
    """
    received = _whole(data)
    if received is not None:
        return received
    reader = _Reader(sock, data)
    head = _read_head(reader)
    body, is_whole = _read_body(reader, head, most)
    # Further bytes may have arrived, which the next request must not get.
    last = head.closes or not is_whole or reader.has_more
    return Received(head.status, head.headers, _unpacked(head.headers, body, most), last)


def read_tunnel_answer(sock: Any) -> tuple[int, str]:
    """Read the response to CONNECT a byte at a time: the bytes behind it belong to the tunnel.

    :returns: its status and reason.
    :raises HTTPException: not a response, or an incomplete one.
    :raises OSError: the connection failed.
    """
    head = _read_head(_Reader(sock, sock.recv(1), at_once=1))
    return head.status, head.reason


def _whole(data: bytes) -> Received | None:
    """Return the response if these bytes are exactly one ordinary response; else None."""
    end = data.find(b"\r\n\r\n")
    head = _PLAIN_HEAD.fullmatch(data, 0, max(0, end))
    if head is None:
        return None
    status, names = int(head[1]), head[2].lower() + b"\r\n"
    if _UNUSUAL.search(names) is not None or names.count(b"\r\n") > _MOST_HEADERS + 1 or status in _WITHOUT_BODY:
        return None
    length = b"\r\ncontent-length: %d\r\n" % (len(data) - end - 4)
    if length not in names or names.count(b"\r\ncontent-length:") != 1:
        return None
    headers = Headers(str(head[2], "iso-8859-1").split("\r\n")[1:])
    return Received(status, headers, data[end + 4 :], last=False)


def _read_head(reader: _Reader) -> _Head:
    """Return the head of the response, after interim responses."""
    for _ in range(_MOST_INTERIM + 1):
        version, status, reason = _read_status(reader)
        head = _Head(version, status, reason, Headers(_read_lines(reader)))
        if status not in _INTERIM:
            return head
    raise HTTPException(f"got more than {_MOST_INTERIM} interim answers")


def _read_status(reader: _Reader) -> tuple[str, int, str]:
    line = str(reader.line(), "iso-8859-1")
    if not line:
        raise RemoteDisconnected("Remote end closed connection without response")
    version, status, reason = [*line.split(None, 2), "", "", ""][:3]
    if not version.startswith("HTTP/") or not re.fullmatch("[1-9][0-9][0-9]", status):
        raise BadStatusLine(line)
    if not version.startswith(("HTTP/1.", "HTTP/0.9")):
        raise UnknownProtocol(version)
    return version, int(status), reason.strip()


def _read_lines(reader: _Reader) -> list[str]:
    """Return the lines of a head up to the empty one.

    :raises HTTPException: it has no end: the status of an incomplete response must not count.
    """
    lines: list[str] = []
    while (line := reader.line()) not in (b"\r\n", b"\n"):
        if not line:
            raise HTTPException("the answer ends within its head")
        if len(lines) == _MOST_HEADERS:
            raise HTTPException(f"got more than {_MOST_HEADERS} headers")
        lines.append(str(line, "iso-8859-1").rstrip("\r\n"))
    return lines


def _read_body(reader: _Reader, head: _Head, most: int) -> tuple[bytes, bool]:
    """Return the first bytes of the body, and whether that is all of it."""
    lengths = set(head.headers.get_all("content-length"))
    if len(lengths) > 1:
        raise HTTPException(f"the answer has {len(lengths)} lengths: {', '.join(sorted(lengths))}")
    if head.status in _WITHOUT_BODY:
        return b"", True
    if head.headers.get("transfer-encoding", "").lower() == "chunked":
        return _read_chunks(reader, most)
    if not lengths:  # up to the end of the connection
        return reader.read(most), False
    length = lengths.pop()
    if not (length.isdecimal() and length.isascii() and len(length) <= _LONGEST_LENGTH):
        raise HTTPException(f"the answer's Content-Length is none: {length!r}")
    return _read_all(reader, min(int(length), most)), int(length) <= most


def _read_chunks(reader: _Reader, most: int) -> tuple[bytes, bool]:
    body = bytearray()
    while True:
        line = reader.line()
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            raise IncompleteRead(bytes(body))
        left = int(size[1], 16)
        if not left:
            _read_trailer(reader)
            return bytes(body), True
        body += _read_all(reader, min(left, most - len(body)))
        if len(body) >= most:
            return bytes(body), False
        reader.read(2)  # the end of the chunk


def _read_trailer(reader: _Reader) -> None:
    for _ in range(_MOST_HEADERS + 1):
        if reader.line() in (b"\r\n", b"\n", b""):
            return
    raise HTTPException(f"got more than {counted(_MOST_HEADERS, 'line')} after the last chunk")


def _read_all(reader: _Reader, size: int) -> bytes:
    data = reader.read(size)
    if len(data) < size:
        raise IncompleteRead(data, size - len(data))
    return data


def _unpacked(headers: Headers, body: bytes, most: int) -> bytes:
    """Return the body decompressed; a proxy may have compressed it, unasked."""
    if headers.get("content-encoding", "").lower() not in ("gzip", "x-gzip", "deflate"):
        return body
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body, most)
    except zlib.error:
        return body  # the status is an answer even so


class _Reader:
    """The bytes of a response: those that came first, and those from the socket.

    :param at_once: bytes of one read.
    """

    def __init__(self, sock: Any, data: bytes, at_once: int = FIRST) -> None:
        self._sock, self._data, self._at_once = sock, bytearray(data), at_once
        self._has_ended = not data

    @property
    def has_more(self) -> bool:
        """True if received bytes were not read."""
        return bool(self._data)

    def line(self) -> bytes:
        """Return the next line with its end; at the end of the connection, the rest.

        :raises LineTooLong: it has no end within the limit.
        """
        while (end := self._data.find(b"\n", 0, _LONGEST_LINE)) < 0:
            if len(self._data) >= _LONGEST_LINE:
                raise LineTooLong("header line")
            if not self._come():
                break
        return self._taken(end + 1 if end >= 0 else len(self._data))

    def read(self, size: int) -> bytes:
        """Return this many bytes; fewer at the end of the connection."""
        while len(self._data) < size and self._come():
            pass
        return self._taken(size)

    def _come(self) -> bool:
        """Receive more; return False at the end of the connection."""
        more = b"" if self._has_ended else self._sock.recv(self._at_once)
        self._has_ended = not more
        self._data += more
        return bool(more)

    def _taken(self, size: int) -> bytes:
        taken = bytes(self._data[:size])
        del self._data[:size]
        return taken
