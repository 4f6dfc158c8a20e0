"""From an exchange that failed to an error that says whether the request may have been carried out.

What left decides (see :mod:`.connections`); the exception only gives the words.
"""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

import urllib3.exceptions

from ...model.errors import AttemptError, MisconfiguredError, NetworkError, UnreachableError
from ...text.printable import one_line
from .connections import Sent
from .proxies import place_of

# What OpenSSL calls an answer that is no TLS; newer versions by the second name.
_NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}
PLAIN_HTTP = "; the server answers plain HTTP, not TLS: write http:// in the endpoint, or ask for its https port"
_OR_THE_PROXY = "; or it is the proxy that answers in its place"

#: How what is said of a certificate begins, and what is wrong with it, by OpenSSL's numbers.
CERTIFICATE = "; its certificate "
_CERTIFICATES = {
    (9,): "is not valid yet, or this machine's clock is wrong",
    (10,): "has expired, or this machine's clock is wrong",
    (18, 19, 20, 21): "is of an authority that is not known here: name a file that has it by http.ca_bundle, or by "
    "REQUESTS_CA_BUNDLE in the environment",
    (62, 64): "is made for other hosts: the endpoint must be one of those",
}

# Of a connection that is to be opened; that there is one is looked at when a producer is made.
_NO_FILE = "; the certificates of http.ca_bundle, or of REQUESTS_CA_BUNDLE in the environment, cannot be read any more"

#: How what is said of a proxy begins that opens no way.
PROXY = "proxy"

_NO_CONNECTION = "no connection"
# The first that fits: what an error is comes before where it happened.
_STAGES: list[tuple[tuple[type[Exception], ...], str]] = [
    ((urllib3.exceptions.ProxyError,), PROXY),
    ((ssl.SSLError, urllib3.exceptions.SSLError), "TLS"),
    # In some versions it is a timeout, too.
    ((urllib3.exceptions.NewConnectionError,), _NO_CONNECTION),
    ((TimeoutError, urllib3.exceptions.TimeoutError), "no connection in time"),
]

#: The code of an answer by which a proxy asks who is there, and what http.client says of it in place of a tunnel.
PROXY_AUTHENTICATION = "ProxyAuthenticationRequired"
_NO_TUNNEL = f"Tunnel connection failed: {http.client.PROXY_AUTHENTICATION_REQUIRED:d}"

# Characters of a URL.
_SHOWN = 200
#: In a page that shows what came, as a header, in JSON, or in a table: what signs, and what a proxy wants.
_CREDENTIALS = re.compile(
    r"""((?:authorization|x-acs-security-token)(?:["']?\s*[:=]\s*["']?|["']?\s*(?:<[^<>]*>\s*)+))[^\r\n"'<>]+""",
    re.IGNORECASE,
)
# Of what an exception says, which may be a whole line of an answer: results live as long as their batches.
_MOST_WORDS = 1024
# Characters of a server's id of a request: it is kept with each attempt.
_LONGEST_ID = 128

# What urllib3 puts before some messages: the connection as a Python object; of its newer versions with host and port.
_OBJECT = re.compile(r"^<[^>]*>: ")
_CONNECTION = re.compile(r"^\w+\(host='([^']*)', port=(\d+)\): ")


def error_of_proxy(way: str) -> MisconfiguredError:
    """The error of status 407: no request goes beyond the proxy that answers it, whether it was to hand one on or to
    open a tunnel for it.

    :param way: of :func:`~.proxies.through`.
    """
    status = http.client.PROXY_AUTHENTICATION_REQUIRED
    advice = "write them into its URL, http://user:password@host:port"
    words = f"HTTP {status:d}{way}: the proxy takes no request without a user and password that it knows; {advice}"
    return MisconfiguredError(PROXY_AUTHENTICATION, words, http_status=status)


def page_of(body: bytes, most: int) -> str:
    """How a page begins that is no answer as it should be, without the credentials of the request that it may show.

    :param most: characters.
    """
    return _CREDENTIALS.sub(r"\1***", body[: 8 * most].decode("utf-8", "backslashreplace"))[:most]


def elsewhere(status: int, headers: Mapping[str, str]) -> str:
    """What an error says of an answer that is a redirect, which nobody follows: where it leads, without what may be a
    secret in that URL; empty for any other.
    """
    url = headers.get("Location", "") if 300 <= status < 400 else ""
    if not url:
        return ""
    try:
        page = f"{place_of(url)}{urlsplit(url).path}".removeprefix("://")[:_SHOWN]
    except ValueError:
        page = "…"
    return f", which sends elsewhere, to {page!r}"


def error_of_exception(error: Exception, sent: Sent, way: str = "") -> AttemptError:
    """The error that a failed exchange stands for.

    :param way: of :func:`~.proxies.through`.
    """
    if sent is Sent.NOTHING:
        return _never_sent(error, way)
    if isinstance(error, TimeoutError | urllib3.exceptions.TimeoutError):
        return _without_answer("SocketTimeout", f"no answer in time{way}", error, sent)
    return _without_answer("RequestError", f"no answer{way}", error, sent)


def _never_sent(error: Exception, way: str) -> AttemptError:
    # A URL, a header or a name that cannot be sent; a certificate bundle that does not exist is a bare OSError, unlike
    # what comes from a socket.
    refused = isinstance(error, ValueError) and not isinstance(error, ssl.SSLError)  # a certificate's error is both
    if refused or type(error) is OSError:
        return MisconfiguredError("RequestError", f"the request could not be made: {_reason(error)}")
    *outer, cause = _layers(error)
    if str(cause).startswith(_NO_TUNNEL):
        return error_of_proxy(way)
    layers = (*outer, cause)
    stage = next((words for kinds, words in _STAGES if any(isinstance(each, kinds) for each in layers)), _NO_CONNECTION)
    return UnreachableError("RequestError", f"{stage}{way}: {_words(cause)}{_hint(cause, way)}")


def _hint(cause: Exception, way: str) -> str:
    """What to do about a failed handshake; nothing for anything else."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        found = (words for codes, words in _CERTIFICATES.items() if cause.verify_code in codes)
        return CERTIFICATE + next(found, "is not accepted")
    if isinstance(cause, ssl.SSLError) and getattr(cause, "reason", None) in _NO_TLS:
        return f"{PLAIN_HTTP}{_OR_THE_PROXY if way else ''}"
    return _NO_FILE if isinstance(cause, FileNotFoundError | PermissionError) else ""


def _without_answer(code: str, what: str, error: Exception, sent: Sent) -> NetworkError:
    words = what if sent is Sent.WHOLE else f"{what}, and the request did not leave completely"
    return NetworkError(code, f"{words}: {_reason(error)}", may_have_been_stored=sent is Sent.WHOLE)


def error_of_limit(limit: str, sent: Sent, way: str = "") -> NetworkError:
    """The error of an exchange that was ended at its limit.

    :param limit: the limit, in words.
    :param way: of :func:`~.proxies.through`.
    """
    if sent is Sent.NOTHING:
        return UnreachableError("SocketTimeout", f"no connection within {limit}{way}")
    words = f"no complete answer within {limit}{way}"
    if sent is Sent.PART:
        words = f"the request did not leave completely within {limit}{way}"
    return NetworkError("SocketTimeout", words, may_have_been_stored=sent is Sent.WHOLE)


def _reason(error: Exception) -> str:
    """The innermost cause in words; the outer layers repeat the URL and the address of a Python object."""
    return _words(_innermost(error))


def _words(cause: Exception) -> str:
    # urllib3's begins with the connection, too, as an object.
    said = cause.args[-1] if isinstance(cause, urllib3.exceptions.ConnectTimeoutError) and cause.args else cause
    words = one_line(_OBJECT.sub("", _CONNECTION.sub(r"\1:\2: ", str(said)[: 2 * _MOST_WORDS])))
    shown = words if len(words) <= _MOST_WORDS else f"{words[:_MOST_WORDS]}…"
    return f"{type(cause).__name__}: {shown}"


def request_id_of(headers: Mapping[str, str]) -> str:
    """The server's id of a request, as a line of a log may hold it, or nothing."""
    return one_line(headers.get("x-log-requestid", "")[:_LONGEST_ID])[:_LONGEST_ID]


def _innermost(error: Exception) -> Exception:
    return _layers(error)[-1]


def _layers(error: Exception) -> list[Exception]:
    """The error and its causes, as urllib3 and requests pack them into each other; the innermost last."""
    layers = [error]
    while True:
        cause = layers[-1]
        inner = getattr(cause, "reason", None) or next((arg for arg in cause.args if isinstance(arg, Exception)), None)
        if not isinstance(inner, Exception):
            return layers
        layers.append(inner)
