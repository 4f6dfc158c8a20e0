"""Answers, read without Python's parser of e-mails, which costs more than all else that a small answer does; what may
stand in a head, and how much, is as in ``http.client``.

An answer that came as a whole with the first bytes is taken apart where it lies. Every other one is read step by step
by ``http.client``, with another parser for its head.
"""

from __future__ import annotations

import http.client
import io
import re
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

#: A line has no more bytes, a head no more headers, and a length no more digits.
_LONGEST_LINE, _MOST_HEADERS, _LONGEST_LENGTH = 65536, 100, 18
#: Answers that only say that one will come: a flood of them would keep the interpreter busy until the attempt's limit.
_MOST_INTERIM = 1000
#: What is read at once, bytes: more than an acknowledgement has.
FIRST = 16 * 1024
#: An error of a server is a few hundred bytes; whatever sends more is something else. Bytes of a body.
MOST_OF_AN_ANSWER = 64 * 1024
#: What only says that an answer will come; 101 is one: whoever sends it speaks something else from there on.
_INTERIM = frozenset(range(100, 200)) - {http.HTTPStatus.SWITCHING_PROTOCOLS}
_WITHOUT_BODY = frozenset((http.HTTPStatus.NO_CONTENT, http.HTTPStatus.NOT_MODIFIED))
# A head, but for its last line's end, each of whose headers stands on a line of its own; interim answers are none.
_PLAIN_HEAD = re.compile(rb"HTTP/1\.1 ([2-9][0-9][0-9])(?: [^\r\n]*)?((?:\r\n[^\s:][^\r\n:]*:[^\r\n]*)+)")
# Headers, in lower case, with which an answer is more than a head and a body of a known length.
_UNUSUAL = re.compile(rb"\r\n(?:transfer-encoding:|content-encoding:|connection:(?! keep-alive\r\n))")


class Headers(http.client.HTTPMessage):
    """Headers by name, in whatever case; of those that stand there several times the first.

    It is a message only since urllib3 asks each answer for what its parser could not read: nothing.

    :param lines: of the head, without the first.
    """

    defects = ()  # type: ignore[assignment]  # a list there

    def __init__(self, lines: list[str]) -> None:  # not the message's own, which costs what is to be spared
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

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def get(self, name: str, default: Any = None) -> Any:
        """The first value of a header; ``default`` if it is not there."""
        values = self._values.get(name.lower())
        return default if values is None else values[0]

    def get_all(self, name: str, default: Any = None) -> Any:
        """Every value of a header; ``default`` if it is not there."""
        return self._values.get(name.lower(), default)

    def keys(self) -> Any:
        """Every name, once."""
        return self._values.keys()

    def values(self) -> Any:
        """The first value of each name."""
        return [values[0] for values in self._values.values()]

    def items(self) -> Any:
        """Each name with its first value."""
        return [(name, values[0]) for name, values in self._values.items()]

    def is_multipart(self) -> bool:
        """It has no body of its own."""
        return False

    def get_payload(self, *_: Any, **__: Any) -> Any:
        """Nothing was left over."""
        return None


class PlainHeaders(Headers):
    """Those of a head each of whose headers stands on a line of its own: most are never asked for, so one is looked up
    where it lies.

    :param lines: of the head, without the first; each follows on an end of line, and one more comes last.
    :param names: the same in lower case.
    """

    def __init__(self, lines: bytes, names: bytes) -> None:
        self._lines, self._names = lines, names

    def get(self, name: str, default: Any = None) -> Any:
        """See :class:`Headers`."""
        sought = b"\r\n%b:" % name.lower().encode()
        at = self._names.find(sought)
        if at < 0:
            return default
        start = at + len(sought)
        return str(self._lines[start : self._lines.find(b"\r\n", start)], "iso-8859-1").strip()

    def __getattr__(self, name: str) -> Any:
        if name != "_values":
            raise AttributeError(name)
        Headers.__init__(self, str(self._lines, "iso-8859-1").split("\r\n")[1:-1])
        return self._values


if TYPE_CHECKING:

    class _HTTPResponse(http.client.HTTPResponse):
        """What :class:`Response` uses of its base class besides what the type checker knows of it."""

        _method: str

        def _read_status(self) -> tuple[str, int, str]: ...
        def _safe_read(self, amt: int) -> bytes: ...
        def _check_close(self) -> bool: ...
else:
    _HTTPResponse = http.client.HTTPResponse


class Response(_HTTPResponse):
    """An answer whose head becomes :class:`Headers`."""

    def begin(self) -> None:
        """Read the head of the answer, and those that only say that one will come.

        :raises http.client.HTTPException: it is none.
        """
        version, status, reason = self._read_status()
        interim = 0
        while status in _INTERIM:
            interim += 1
            if interim > _MOST_INTERIM:
                raise http.client.HTTPException(f"got more than {_MOST_INTERIM} interim answers")
            _read_head(self.fp)
            version, status, reason = self._read_status()
        if not version.startswith(("HTTP/1.", "HTTP/0.9")):
            raise http.client.UnknownProtocol(version)
        self.version = 10 if version in ("HTTP/1.0", "HTTP/0.9") else 11
        self.code = self.status = status
        self.reason = reason.strip()
        self.headers = self.msg = Headers(_read_head(self.fp))
        self._find_end()

    def _safe_read(self, amt: int) -> bytes:
        """See :class:`http.client.HTTPResponse`, which takes a chunk of -1 bytes for all that ever comes."""
        if amt < 0:
            raise http.client.IncompleteRead(b"")
        return super()._safe_read(amt)

    def _read_and_discard_trailer(self) -> None:
        """See :class:`http.client.HTTPResponse`, which reads one without an end."""
        _read_lines(self.fp)

    def _find_end(self) -> None:
        """Where the body ends: at its length, with its last chunk, or with the connection."""
        other = self.status == http.HTTPStatus.SWITCHING_PROTOCOLS  # what follows is no HTTP
        self.chunked = not other and self.headers.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        length = self.headers.get("content-length", "")
        self.length = int(length) if _is_length(length) and not self.chunked else None
        if other or self.status in _WITHOUT_BODY or self._method == "HEAD":
            self.length = 0
        endless = not self.chunked and self.length is None
        self.will_close = other or endless or self._check_close()


def _is_length(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) <= _LONGEST_LENGTH


def _read_head(file: BinaryIO) -> list[str]:
    """The lines of a head but its first.

    :raises http.client.HTTPException: it has no end. ``http.client`` takes what came for all of it, so that the status
        of an answer that somebody on the way has cut would count.
    """
    lines, ended = _read_lines(file)
    if not ended:
        raise http.client.HTTPException("the answer ends within its head")
    return lines


def _read_lines(file: BinaryIO) -> tuple[list[str], bool]:
    """The lines of a head up to the empty one, or the end; and whether there was an empty one."""
    lines: list[str] = []
    while True:
        line = file.readline(_LONGEST_LINE + 1)
        if len(line) > _LONGEST_LINE:
            raise http.client.LineTooLong("header line")
        if line in (b"\r\n", b"\n", b""):
            return lines, bool(line)
        if len(lines) == _MOST_HEADERS:
            raise http.client.HTTPException(f"got more than {_MOST_HEADERS} headers")
        lines.append(str(line, "iso-8859-1").rstrip("\r\n"))


class Received(NamedTuple):
    """An answer, read as far as anybody wants to.

    :ivar body: its first bytes, unpacked.
    :ivar last: whether its connection is of no more use.
    """

    status: int
    headers: Headers
    body: bytes
    last: bool


def receive(sock: Any, data: bytes, method: str, most: int = MOST_OF_AN_ANSWER) -> Received:
    """Read the answer to a request from its socket.

    :param data: what was read of it before; nothing if the connection has ended.
    :param method: of the request.
    :param most: bytes of its body, packed or not.
    :raises http.client.HTTPException: it is none, it is not whole, or does not say how long it is.
    :raises OSError: the connection failed.
    """
    received = _whole(data)
    if received is not None:
        return received
    begun = _Begun(sock, data)
    response = Response(begun, method=method)  # type: ignore[arg-type]  # it is asked for its file alone
    try:
        response.begin()
        body = _read(response, most)
        # There may be more than anybody wants to read; or than was asked for, which the next one must not get.
        last = response.will_close or not response.isclosed() or begun.surplus
        return Received(response.status, response.headers, body, last)  # type: ignore[arg-type]  # `begin` made them
    finally:
        response.close()


def _whole(data: bytes) -> Received | None:
    """The answer, if these bytes are an ordinary one, all of it and nothing else."""
    end = data.find(b"\r\n\r\n")
    head = _PLAIN_HEAD.fullmatch(data, 0, max(0, end))
    if head is None:
        return None
    status, lines = int(head[1]), head[2] + b"\r\n"
    names = lines.lower()
    if _UNUSUAL.search(names) is not None or names.count(b"\r\n") > _MOST_HEADERS + 1 or status in _WITHOUT_BODY:
        return None
    length = b"\r\ncontent-length: %d\r\n" % (len(data) - end - 4)
    if length not in names or names.count(b"\r\ncontent-length:") != 1:
        return None
    return Received(status, PlainHeaders(lines, names), data[end + 4 :], last=False)


def _read(response: http.client.HTTPResponse, most: int) -> bytes:
    """The first bytes of an answer's body, unpacked.

    :raises http.client.HTTPException: the answer is not whole, or does not say how long it is.
    """
    lengths = set(response.headers.get_all("Content-Length", ()))
    if len(lengths) > 1:
        raise http.client.HTTPException(f"the answer has {len(lengths)} lengths: {', '.join(sorted(lengths))}")
    if lengths and response.length is None and not response.chunked:  # to read to the end would be to wait for ever
        raise http.client.HTTPException(f"the answer's Content-Length is none: {lengths.pop()!r}")
    body = response.read(most)
    if response.length and len(body) < most:
        raise http.client.IncompleteRead(body, response.length)
    if response.headers.get("Content-Encoding", "").lower() not in ("gzip", "x-gzip", "deflate"):
        return body
    # By a proxy: nobody was asked to pack it.
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body, most)
    except zlib.error:
        return body  # the status is an answer all the same


class _Begun(io.RawIOBase):
    """What comes from a socket, of which some bytes were read before.

    :ivar ended: whether nothing more is to be read from the socket.
    :ivar surplus: whether something was left that had come when its file was closed.
    """

    def __init__(self, sock: Any, data: bytes) -> None:
        self._sock, self._data = sock, data
        self.ended = self.surplus = False

    def makefile(self, _mode: str) -> io.BufferedReader:
        """As a socket's; to close it closes nothing else."""
        return _File(self)

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """First what was read before."""
        if not self._data:
            return 0 if self.ended else int(self._sock.recv_into(buffer))
        some = self._data[: len(buffer)]
        self._data = self._data[len(some) :]
        buffer[: len(some)] = some
        return len(some)


class _File(io.BufferedReader):
    """Notes what is left when it is closed."""

    raw: _Begun

    def close(self) -> None:
        """See :class:`io.BufferedReader`."""
        if not self.closed:
            self.raw.ended = True
            self.raw.surplus = bool(self.peek(1))
        super().close()
