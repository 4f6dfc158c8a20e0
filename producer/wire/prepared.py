"""Requests that differ only in their body and their time, prepared once and signed again and again.

What :func:`~.signing.sign_v1` does for each request is nearly the same for all requests to a logstore: here the text to
sign and the head are cut where the body's digest, its raw size and the date stand, and put together around new ones.
Version 4 signs the body's digest among the sorted headers; it is signed as any other request.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol
from urllib.parse import unquote, urlencode

from .signing import SigningKey, UnsignedRequest, http_date, sign_v4, string_to_sign_v1, unsigned_v1

#: Makes the lines of a request's headers, without the last line's end; refuses what cannot be sent.
HeadOf = Callable[[Mapping[str, str]], bytes]

_RAW_SIZE = "x-log-bodyrawsize"
# Where something is put in; a header that holds it is refused.
_CUT = "\0"


def request_target(path: str, params: Mapping[str, str]) -> str:
    """What the request line asks for.

    :param path: percent-encoded.
    :param params: not yet.
    """
    return f"{path}?{urlencode(params)}" if params else path


class Prepared(Protocol):
    """A request without its body.

    :ivar target: what the request line asks for.
    """

    target: str

    def head(self, body: bytes, raw_size: int, now: float, md5: bytes = b"") -> bytes:
        """The lines of the headers, signed; without the last line's end.

        :param body: as it travels.
        :param raw_size: of the body before compression, bytes.
        :param now: seconds since the epoch.
        :param md5: the digest of the body, if it is known.
        """


class PreparedV1:
    """Signed by version 1.

    :param request: without a body; its path is percent-encoded.
    """

    def __init__(self, request: UnsignedRequest, key: SigningKey, head_of: HeadOf) -> None:
        self.target = request_target(request.path, request.params)
        headers = unsigned_v1({**request.headers, _RAW_SIZE: _CUT}, key)
        fixed = {name: value for name, value in headers.items() if value != _CUT}
        self._head = head_of({**fixed, "Authorization": f"LOG {key.access_key_id}:"})
        text = string_to_sign_v1(
            replace(request, path=unquote(request.path)), {**headers, "Content-MD5": _CUT, "Date": _CUT}
        )
        # What stands before the digest, the date and the size, and behind them.
        self._method, self._type, self._names, self._end = text.split(_CUT, 3)
        # Begun once, and continued in a copy: `hmac.digest` would let go of the interpreter for a few hundred bytes,
        # which a thread that sends waits for while others are busy.
        self._begun = hmac.new(key.access_key_secret.encode(), digestmod="sha1")
        self._date = -1, ""

    def head(self, body: bytes, raw_size: int, now: float, md5: bytes = b"") -> bytes:
        """See :class:`Prepared`."""
        date = self._date_of(int(now))
        shown = (md5 or hashlib.md5(body, usedforsecurity=False).digest()).hex().upper() if body else ""
        text = f"{self._method}{shown}{self._type}{date}{self._names}{raw_size}{self._end}"
        mac = self._begun.copy()
        mac.update(text.encode())
        signature = binascii.b2a_base64(mac.digest(), newline=False).decode()
        digest = f"Content-MD5: {shown}\r\n" if body else ""
        # Proxies may drop Date. This copy overrides it on the server, and is not part of what was signed.
        end = f"{signature}\r\n{digest}Date: {date}\r\nx-log-date: {date}\r\n{_RAW_SIZE}: {raw_size}"
        return self._head + end.encode()

    def _date_of(self, now: int) -> str:
        second, date = self._date
        if second != now:
            date = http_date(datetime.fromtimestamp(now, UTC))
            self._date = now, date
        return date


class PreparedV4:
    """Signed by version 4; otherwise as :class:`PreparedV1`."""

    def __init__(self, request: UnsignedRequest, key: SigningKey, head_of: HeadOf) -> None:
        self.target = request_target(request.path, request.params)
        self._request = replace(request, path=unquote(request.path))
        self._key, self._head_of = key, head_of

    def head(self, body: bytes, raw_size: int, now: float, md5: bytes = b"") -> bytes:  # noqa: ARG002  # it signs SHA-256
        """See :class:`Prepared`."""
        headers = {**self._request.headers, _RAW_SIZE: str(raw_size)}
        request = replace(self._request, headers=headers, body=body)
        return self._head_of(sign_v4(request, self._key, datetime.fromtimestamp(now, UTC)))
