"""From an exchange that failed to an error that says whether the request may have been carried out.

What left decides (see :class:`.attempts.Sent`); the exception only gives the words.
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

#: How the words for a proxy begin that opens no way.
PROXY = "proxy"

#: The code of an answer by which a proxy asks for a password.
PROXY_AUTHENTICATION = "ProxyAuthenticationRequired"

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
    if isinstance(error, TimeoutError):
        return _without_answer("SocketTimeout", f"no answer in time{way}", error, sent)
    return _without_answer("RequestError", f"no answer{way}", error, sent)


def _never_sent(error: Exception, way: str) -> AttemptError:
    # A URL, a header or a name that cannot be sent, or authorities that are not there any more; the error of a
    # certificate is a ValueError, too.
    if isinstance(error, ValueError) and not isinstance(error, ssl.SSLError):
        return MisconfiguredError("RequestError", f"the request could not be made: {_words(error)}")
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
    """What to do about a failed handshake; nothing for anything else."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        found = (words for codes, words in _CERTIFICATES.items() if cause.verify_code in codes)
        return CERTIFICATE + next(found, "is not accepted")
    if isinstance(cause, ssl.SSLError) and getattr(cause, "reason", None) in _NO_TLS:
        return f"{PLAIN_HTTP}{_OR_THE_PROXY if way else ''}"
    return ""


def _without_answer(code: str, what: str, error: Exception, sent: Sent) -> NetworkError:
    words = what if sent is Sent.WHOLE else f"{what}, and the request did not leave completely"
    return NetworkError(code, f"{words}: {_words(error)}", may_have_been_stored=sent is Sent.WHOLE)


def error_of_limit(limit: str, sent: Sent, way: str = "", error: Exception | None = None) -> NetworkError:
    """The error of an exchange that was ended at its limit.

    :param limit: the limit, in words.
    :param way: of :func:`~.proxies.through`.
    :param error: the exception of the call that it ended, if there is one.
    """
    if sent is Sent.NOTHING:
        waited_for = "" if error is None or str(error) == "timed out" else f": {_words(error)}"
        return UnreachableError("SocketTimeout", f"no connection within {limit}{way}{waited_for}")
    words = f"no complete answer within {limit}{way}"
    if sent is Sent.PART:
        words = f"the request did not leave completely within {limit}{way}"
    return NetworkError("SocketTimeout", words, may_have_been_stored=sent is Sent.WHOLE)


def _words(error: Exception) -> str:
    words = one_line(str(error)[: 2 * _MOST_WORDS])
    shown = words if len(words) <= _MOST_WORDS else f"{words[:_MOST_WORDS]}…"
    return f"{type(error).__name__}: {shown}"


def request_id_of(headers: Mapping[str, str]) -> str:
    """The server's id of a request, as a line of a log may hold it, or nothing."""
    return one_line(headers.get("x-log-requestid", "")[:_LONGEST_ID])[:_LONGEST_ID]
