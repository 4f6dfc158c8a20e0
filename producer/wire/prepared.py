"""Prepares requests that differ only in body and time, so that signing them is fast.

:func:`~.signing.sign_v1` builds nearly the same text for all requests to a logstore. A prepared request has this text,
    and the head, split where the digest of the body, its raw size and the date belong. Version 4 signs the digest among
    the sorted headers, so it signs each request as a whole.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeAlias
from urllib.parse import unquote, urlencode

from .signing import SigningKey, UnsignedRequest, http_date, sign_v4, string_to_sign_v1, unsigned_v1

#: Returns the header lines of a request, without the last line end; rejects invalid headers.
HeadOf = Callable[[Mapping[str, str]], bytes]

_RAW_SIZE = "x-log-bodyrawsize"
# A placeholder; a header that contains it is rejected.
_CUT = "\0"


def request_target(path: str, params: Mapping[str, str]) -> str:
    """Return the target of the request line.

    :param path: the percent-encoded path.
    :param params: the query parameters, not yet encoded.
    """
    return f"{path}?{urlencode(params)}" if params else path


class PreparedV1:
    """A request that is signed by version 1.

    :ivar target: the target of the request line.
    :param request: the request without a body; its path is percent-encoded.
    """

    def __init__(self, request: UnsignedRequest, key: SigningKey, head_of: HeadOf) -> None:
        self.target = request_target(request.path, request.params)
        headers = unsigned_v1({**request.headers, _RAW_SIZE: _CUT}, key)
        fixed = {name: value for name, value in headers.items() if value != _CUT}
        self._head = head_of({**fixed, "Authorization": f"LOG {key.access_key_id}:"})
        text = string_to_sign_v1(
            replace(request, path=unquote(request.path)), {**headers, "Content-MD5": _CUT, "Date": _CUT}
        )
        # The parts of the text around the digest, the date and the size.
        self._method, self._type, self._names, self._end = text.split(_CUT, 3)
        # Copying this state is faster: `hmac.digest` would release the GIL for a few hundred bytes, and a sending
        # thread would wait to get it back.
        self._begun = hmac.new(key.access_key_secret.encode(), digestmod="sha1")
        self._date = -1, ""

    def head(self, body: bytes, raw_size: int, now: float, md5: bytes = b"") -> bytes:
        """Return the signed header lines, without the last line end.

        :param body: the body as it is sent.
        :param raw_size: the size of the body before compression, bytes.
        :param now: the current time, seconds since the epoch.
        :param md5: the digest of the body; empty to compute it.
        """
        date = self._date_of(int(now))
        shown = (md5 or hashlib.md5(body, usedforsecurity=False).digest()).hex().upper() if body else ""
        text = f"{self._method}{shown}{self._type}{date}{self._names}{raw_size}{self._end}"
        mac = self._begun.copy()
        mac.update(text.encode())
        signature = binascii.b2a_base64(mac.digest(), newline=False).decode()
        digest = f"Content-MD5: {shown}\r\n" if body else ""
        # Proxies may drop Date. The server prefers this copy, which is not signed.
        end = f"{signature}\r\n{digest}Date: {date}\r\nx-log-date: {date}\r\n{_RAW_SIZE}: {raw_size}"
        return self._head + end.encode()

    def _date_of(self, now: int) -> str:
        second, date = self._date
        if second != now:
            date = http_date(datetime.fromtimestamp(now, UTC))
            self._date = now, date
        return date


class PreparedV4:
    """A request that is signed by version 4.

    :param request: the request without a body; its path is percent-encoded.
    """

    def __init__(self, request: UnsignedRequest, key: SigningKey, head_of: HeadOf) -> None:
        self.target = request_target(request.path, request.params)
        self._request = replace(request, path=unquote(request.path))
        self._key, self._head_of = key, head_of

    def head(self, body: bytes, raw_size: int, now: float, md5: bytes = b"") -> bytes:  # noqa: ARG002  # version 4 signs SHA-256
        headers = {**self._request.headers, _RAW_SIZE: str(raw_size)}
        request = replace(self._request, headers=headers, body=body)
        return self._head_of(sign_v4(request, self._key, datetime.fromtimestamp(now, UTC)))


#: A request without its body.
Prepared: TypeAlias = PreparedV1 | PreparedV4
