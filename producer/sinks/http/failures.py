"""Failures: turn a failed exchange into an error that says whether the request may have been carried out.

The bytes that were sent decide (see :class:`.attempts.Sent`); the exception only adds its words.
"""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from ...model.errors import AttemptError, MisconfiguredError, NetworkError, UnreachableError
from ...text.printable import one_line
from .attempts import Sent
from .opening import ProxyError, TunnelError
from .proxies import place_of

# OpenSSL's names for a response that is not TLS; newer versions use the second.
_NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}
PLAIN_HTTP = "; the server answers plain HTTP, not TLS: write http:// in the endpoint, or ask for its https port"
_OR_THE_PROXY = "; or it is the proxy that answers in its place"

#: The beginning of a message about a certificate, and the faults by OpenSSL's numbers.
CERTIFICATE = "; its certificate "
_CERTIFICATES = {
    (9,): "is not valid yet, or this machine's clock is wrong",
    (10,): "has expired, or this machine's clock is wrong",
    (18, 19, 20, 21): "is of an unknown authority: name a file with the authority by http.ca_bundle, or by "
    "REQUESTS_CA_BUNDLE in the environment",
    (62, 64): "is for other hosts: the endpoint must name one of them",
}

#: The beginning of the message about a proxy that cannot be used.
PROXY = "proxy"

#: The error code for a proxy that asks for a password.
PROXY_AUTHENTICATION = "ProxyAuthenticationRequired"

# The maximum number of characters of a URL.
_SHOWN = 200
#: Credentials in a page that shows the request, as a header, in JSON, or in a table: signatures and proxy passwords.
_CREDENTIALS = re.compile(
    r"""((?:authorization|x-acs-security-token)(?:["']?\s*[:=]\s*["']?|["']?\s*(?:<[^<>]*>\s*)+))[^\r\n"'<>]+""",
    re.IGNORECASE,
)
# The maximum number of characters of an exception's text, which may be a whole line of a response: results live as long
# as their batches.
_MOST_WORDS = 1024
# The maximum number of characters of a server's request id: it is kept with each attempt.
_LONGEST_ID = 128


def error_of_proxy(way: str) -> MisconfiguredError:
    """Return the error of status 407: the proxy forwarded no request and opened no tunnel.

    :param way: the result of :func:`~.proxies.through`.
    """
    status = http.client.PROXY_AUTHENTICATION_REQUIRED
    advice = "write them into its URL, http://user:password@host:port"
    words = f"HTTP {status:d}{way}: the proxy requires a valid user and password; {advice}"
    return MisconfiguredError(PROXY_AUTHENTICATION, words, http_status=status)


def page_of(body: bytes, most: int) -> str:
    """Return the beginning of an unexpected page, without the request's credentials, which it may show.

    :param most: characters.
    """
    return _CREDENTIALS.sub(r"\1***", body[: 8 * most].decode("utf-8", "backslashreplace"))[:most]


def elsewhere(status: int, headers: Mapping[str, str]) -> str:
    """Return the part of an error about a redirect, which is not followed; empty for any other response.

    It names the new place, without parts of that URL that may be secret.
    """
    url = headers.get("Location", "") if 300 <= status < 400 else ""
    if not url:
        return ""
    try:
        page = f"{place_of(url)}{urlsplit(url).path}".removeprefix("://")[:_SHOWN]
    except ValueError:
        page = "…"
    return f", a redirect to {page!r}, which is not followed"


def error_of_exception(error: Exception, sent: Sent, way: str = "") -> AttemptError:
    """Return the error of a failed exchange.

    :param way: the result of :func:`~.proxies.through`.
    """
    if sent is Sent.NOTHING:
        return _never_sent(error, way)
    if isinstance(error, TimeoutError):
        return _without_answer("SocketTimeout", f"no answer in time{way}", error, sent)
    return _without_answer("RequestError", f"no answer{way}", error, sent)


def _never_sent(error: Exception, way: str) -> AttemptError:
    # A URL, a header or a name that cannot be sent, or authorities that are no longer there. The error of a certificate
    # is a ValueError, too.
    if isinstance(error, ValueError) and not isinstance(error, ssl.SSLError):
        return MisconfiguredError("RequestError", f"the request could not be sent: {_words(error)}")
    cause = error.cause if isinstance(error, ProxyError) else error
    if isinstance(cause, TunnelError) and cause.status == http.client.PROXY_AUTHENTICATION_REQUIRED:
        return error_of_proxy(way)
    stage = PROXY if isinstance(error, ProxyError) else _stage(error)
    return UnreachableError("RequestError", f"{stage}{way}: {_words(cause)}{_hint(cause, way)}")


def _stage(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "TLS"
    return "no connection in time" if isinstance(error, TimeoutError) else "no connection"


def _hint(cause: Exception, way: str) -> str:
    """Return the remedy for a failed handshake; empty for other errors."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        found = (words for codes, words in _CERTIFICATES.items() if cause.verify_code in codes)
        return CERTIFICATE + next(found, "is not accepted")
    if isinstance(cause, ssl.SSLError) and getattr(cause, "reason", None) in _NO_TLS:
        return f"{PLAIN_HTTP}{_OR_THE_PROXY if way else ''}"
    return ""


def _without_answer(code: str, what: str, error: Exception, sent: Sent) -> NetworkError:
    words = what if sent is Sent.WHOLE else f"{what}, and the request was not sent completely"
    return NetworkError(code, f"{words}: {_words(error)}", may_have_been_stored=sent is Sent.WHOLE)


def error_of_limit(limit: str, sent: Sent, way: str = "", error: Exception | None = None) -> NetworkError:
    """Return the error of an exchange that was ended at its limit.

    :param limit: the limit, in words.
    :param way: the result of :func:`~.proxies.through`.
    :param error: the exception of the call that the limit ended; None without one.
    """
    if sent is Sent.NOTHING:
        waited_for = "" if error is None or str(error) == "timed out" else f": {_words(error)}"
        return UnreachableError("SocketTimeout", f"no connection within {limit}{way}{waited_for}")
    words = f"no complete answer within {limit}{way}"
    if sent is Sent.PART:
        words = f"the request was not sent completely within {limit}{way}"
    return NetworkError("SocketTimeout", words, may_have_been_stored=sent is Sent.WHOLE)


def _words(error: Exception) -> str:
    words = one_line(str(error)[: 2 * _MOST_WORDS])
    shown = words if len(words) <= _MOST_WORDS else f"{words[:_MOST_WORDS]}…"
    return f"{type(error).__name__}: {shown}"


def request_id_of(headers: Mapping[str, str]) -> str:
    """Return the server's request id, made safe for a log line; empty without one."""
    return one_line(headers.get("x-log-requestid", "")[:_LONGEST_ID])[:_LONGEST_ID]
