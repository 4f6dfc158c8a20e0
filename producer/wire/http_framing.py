r"""The server side of HTTP/1.1: h11, without requests whose end is ambiguous.

A proxy and the server behind it must agree on the end of a request. h11 accepts all that RFC 9112 allows a server to
accept, and a proxy may read some of it differently. So this module rejects a request that

* has both ``Content-Length`` and ``Transfer-Encoding``, or is chunked in HTTP/1.0;
* continues a header in the next line (``obs-fold``), or ends a line of its head with a bare ``\n``;
* has another version than HTTP/1.0 and HTTP/1.1.

Example: the response to ``POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n`` is
400.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import h11

_BAD_LINE = re.compile(rb"\n[ \t]|(?<!\r)\n")


class ServerConnection(h11.Connection):
    """The connection of one client, without its socket.

    :param max_head_bytes: maximum size of a request line with its headers, bytes.
    """

    def __init__(self, max_head_bytes: int) -> None:
        super().__init__(h11.SERVER, max_head_bytes)
        self._max_head_bytes = max_head_bytes

    def next_event(self) -> Any:
        """Return the next event, as h11 does.

        :raises h11.RemoteProtocolError: it is not HTTP/1.1, or ambiguous; ``error_status_hint`` is the status of the
            response.
        """
        if self.their_state is not h11.IDLE:
            return super().next_event()
        before, _ = self.trailing_data
        event = super().next_event()
        if isinstance(event, h11.Request):
            after, _ = self.trailing_data
            head = before[: len(before) - len(after)]
            if len(head) > self._max_head_bytes:  # h11 checks the size only of an incomplete head.
                raise h11.RemoteProtocolError("headers that are too large", error_status_hint=431)
            _check(event, head)
        return event


def _check(request: h11.Request, head: bytes) -> None:
    """Check that the end of a request is unambiguous.

    :raises h11.RemoteProtocolError: it is ambiguous.
    """
    if request.http_version not in (b"1.0", b"1.1"):
        raise h11.RemoteProtocolError("only HTTP/1.0 and HTTP/1.1 are served", error_status_hint=505)
    if _BAD_LINE.search(head):
        raise h11.RemoteProtocolError("a line of the head is continued, or ends without a carriage return")
    names = {name for name, _ in request.headers}
    if b"transfer-encoding" in names and (b"content-length" in names or request.http_version == b"1.0"):
        raise h11.RemoteProtocolError("chunked, and a Content-Length or HTTP/1.0")


def begin_answer(connection: ServerConnection, status: int, headers: Iterable[tuple[str, str]]) -> bytes:
    """Return the head of a response whose length is not known; ``connection.send`` frames the rest."""
    return bytes(
        connection.send(h11.Response(status_code=status, reason=HTTPStatus(status).phrase, headers=list(headers)))
    )


def answer(
    connection: ServerConnection, status: int, headers: Iterable[tuple[str, str]], body: bytes, *, head: bool = False
) -> bytes:
    """Return the bytes of a whole response.

    :param head: True if the request was ``HEAD``, so that the body is left out.
    """
    response = h11.Response(
        status_code=status,
        reason=HTTPStatus(status).phrase,
        headers=[("Content-Length", str(len(body))), *headers],
    )
    parts = [connection.send(response)]
    if body and not head:
        parts.append(connection.send(h11.Data(data=body)))
    return b"".join([*parts, connection.send(h11.EndOfMessage())])
