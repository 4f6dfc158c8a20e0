"""The head of an answer, read without Python's parser of e-mails, which costs more than all else that a small answer
does; what may stand in a head, and how much, is as in ``http.client``.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import Any, BinaryIO

#: A line has no more bytes, and a head no more headers.
_LONGEST_LINE, _MOST_HEADERS = 65536, 100


class Headers(http.client.HTTPMessage):
    """Headers by name, in whatever case; of those that stand there several times the first.

    It is a message only since urllib3 asks each answer for what its parser could not read: nothing.

    :param lines: of the head, without the first.
    """

    defects = ()  # type: ignore[assignment]

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


class Response(http.client.HTTPResponse):
    """An answer whose head becomes :class:`Headers`."""

    def begin(self) -> None:
        """Read the head of the answer, and those that only say that one will come.

        :raises http.client.HTTPException: it is none.
        """
        version, status, reason = self._read_status()  # type: ignore[attr-defined]
        while status == http.HTTPStatus.CONTINUE:
            _read_lines(self.fp)
            version, status, reason = self._read_status()  # type: ignore[attr-defined]
        if not version.startswith(("HTTP/1.", "HTTP/0.9")):
            raise http.client.UnknownProtocol(version)
        self.version = 10 if version in ("HTTP/1.0", "HTTP/0.9") else 11
        self.code = self.status = status
        self.reason = reason.strip()
        self.headers = self.msg = Headers(_read_lines(self.fp))
        self._find_end()

    def _find_end(self) -> None:
        """Where the body ends: at its length, with its last chunk, or with the connection."""
        self.chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        length = self.headers.get("content-length", "")
        self.length = int(length) if length.isdecimal() and length.isascii() and not self.chunked else None
        if self.status in (http.HTTPStatus.NO_CONTENT, http.HTTPStatus.NOT_MODIFIED) or self._method == "HEAD":  # type: ignore[attr-defined]
            self.length = 0
        endless = not self.chunked and self.length is None
        self.will_close = endless or self._check_close()  # type: ignore[attr-defined]


def _read_lines(file: BinaryIO) -> list[str]:
    """The lines of a head up to the empty one, or the end."""
    lines: list[str] = []
    while True:
        line = file.readline(_LONGEST_LINE + 1)
        if len(line) > _LONGEST_LINE:
            raise http.client.LineTooLong("header line")
        if line in (b"\r\n", b"\n", b""):
            return lines
        if len(lines) == _MOST_HEADERS:
            raise http.client.HTTPException(f"got more than {_MOST_HEADERS} headers")
        lines.append(str(line, "iso-8859-1").rstrip("\r\n"))
