"""Answers, read without Python's parser of e-mails, which costs more than all else of a small answer.

An answer that came as a whole with the first bytes is taken apart in one step. Every other one is read line by line,
as ``http.client`` reads it: with as many headers, as long lines and the same errors. An answer that is cut within its
head, or has several lengths or one that is no number, is an error here.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from http.client import BadStatusLine, HTTPException, IncompleteRead, LineTooLong, RemoteDisconnected, UnknownProtocol
from typing import Any, NamedTuple

from ...text.plural import counted

#: A line has no more bytes, a head no more headers, and a length no more digits.
_LONGEST_LINE, _MOST_HEADERS, _LONGEST_LENGTH = 65536, 100, 18
#: Answers that only say that one will come: a flood of them would keep the interpreter busy until the attempt's limit.
_MOST_INTERIM = 1000
#: Bytes of one read: more than an acknowledgement has.
FIRST = 16 * 1024
#: Bytes of a body: an error of a server has a few hundred.
MOST_OF_AN_ANSWER = 64 * 1024
#: Behind 101 the other end speaks something else: it is the last answer.
_INTERIM = frozenset(range(100, 200)) - {HTTPStatus.SWITCHING_PROTOCOLS}
_WITHOUT_BODY = frozenset((HTTPStatus.SWITCHING_PROTOCOLS, HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED))
# A head, but for its last line's end, each of whose headers has a line of its own; interim answers are none.
_PLAIN_HEAD = re.compile(rb"HTTP/1\.1 ([2-9][0-9][0-9])(?: [^\r\n]*)?((?:\r\n[^\s:][^\r\n:]*:[^\r\n]*)+)")
# Headers, in lower case, with which an answer is more than a head and a body of a known length.
_UNUSUAL = re.compile(rb"\r\n(?:transfer-encoding:|content-encoding:|connection:(?! keep-alive\r\n))")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?\r?\n", re.DOTALL)


class Headers(Mapping[str, str]):
    """Headers by name, in any case; of a name that is there several times the first value.

    :param lines: of the head, without the first.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._values: dict[str, list[str]] = {}
        last: list[str] = []
        for line in lines:
            if line[:1] in {" ", "\t"}:  # goes on from the line before
                if last:
                    last[-1] += " " + line.strip()
                continue
            name, colon, value = line.partition(":")
            if not colon:
                break  # whatever this is, what follows are no headers
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
    """An answer, read as far as it is wanted.

    :ivar body: its first bytes, unpacked.
    :ivar last: True if its connection is of no more use.
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
        """True if the connection ends behind the answer."""
        connection = self.headers.get("connection", "").lower()
        if self.version in ("HTTP/1.0", "HTTP/0.9"):
            kept = connection + self.headers.get("proxy-connection", "").lower()
            return "keep-alive" not in kept and not self.headers.get("keep-alive")
        return "close" in connection or self.status == HTTPStatus.SWITCHING_PROTOCOLS


def receive(sock: Any, data: bytes, most: int = MOST_OF_AN_ANSWER) -> Received:
    """Read the answer to a request from its socket.

    :param data: what was read of it before; nothing if the connection has ended.
    :param most: bytes of its body, packed or not.
    :raises HTTPException: it is none, it is not whole, or does not say how long it is.
    :raises OSError: the connection failed.
    """
    received = _whole(data)
    if received is not None:
        return received
    reader = _Reader(sock, data)
    head = _read_head(reader)
    body, is_whole = _read_body(reader, head, most)
    # There may be more than is wanted, or than was asked for, which the next request must not get.
    last = head.closes or not is_whole or reader.has_more
    return Received(head.status, head.headers, _unpacked(head.headers, body, most), last)


def read_tunnel_answer(sock: Any) -> tuple[int, str]:
    """Read the answer to CONNECT a byte at a time: what comes behind it is the tunnel's.

    :returns: its status and reason.
    :raises HTTPException: it is none, or not whole.
    :raises OSError: the connection failed.
    """
    head = _read_head(_Reader(sock, sock.recv(1), at_once=1))
    return head.status, head.reason


def _whole(data: bytes) -> Received | None:
    """The answer, if these bytes are an ordinary one, all of it and nothing else."""
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
    """The head of the answer, behind those that only say that one will come."""
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
    """The lines of a head up to the empty one.

    :raises HTTPException: it has no end: the status of an answer that was cut on the way must not count.
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
    """The first bytes of the body, and whether there is no more of it."""
    lengths = set(head.headers.get_all("content-length"))
    if len(lengths) > 1:
        raise HTTPException(f"the answer has {len(lengths)} lengths: {', '.join(sorted(lengths))}")
    if head.status in _WITHOUT_BODY:
        return b"", True
    if head.headers.get("transfer-encoding", "").lower() == "chunked":
        return _read_chunks(reader, most)
    if not lengths:  # up to the connection's end
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
    """The body as it was before a proxy packed it, for which no request asks."""
    if headers.get("content-encoding", "").lower() not in ("gzip", "x-gzip", "deflate"):
        return body
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body, most)
    except zlib.error:
        return body  # the status is an answer all the same


class _Reader:
    """The bytes of an answer: those that came first, and what comes from the socket.

    :param at_once: bytes that are asked for at a time.
    """

    def __init__(self, sock: Any, data: bytes, at_once: int = FIRST) -> None:
        self._sock, self._data, self._at_once = sock, bytearray(data), at_once
        self._has_ended = not data

    @property
    def has_more(self) -> bool:
        """True if bytes have come that were not read."""
        return bool(self._data)

    def line(self) -> bytes:
        """Return the next line with its end; what is left at the end of the connection.

        :raises LineTooLong: it has no end within the limit.
        """
        while (end := self._data.find(b"\n", 0, _LONGEST_LINE)) < 0:
            if len(self._data) >= _LONGEST_LINE:
                raise LineTooLong("header line")
            if not self._come():
                break
        return self._taken(end + 1 if end >= 0 else len(self._data))

    def read(self, size: int) -> bytes:
        """Return so many bytes, or what there is before the end of the connection."""
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
