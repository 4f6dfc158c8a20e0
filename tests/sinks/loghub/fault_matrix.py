"""The fault matrix: the faults on the way to LogHub, and the reactions of the producer.

``fault_matrix.md`` shows :data:`CASES` as a table; ``test_fault_matrix.py`` runs every case against a real server on a
socket.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from producer.server import LogHubServer, faults

#: The reactions to a failed attempt, as the documentation words them.
BACKOFF = "retried with backoff"
HOLD = "retried with backoff; the logstore is held back"
REFRESH = "retried with backoff, at most 3 times in a row, with refreshed credentials"
AT_ONCE = "clock offset learned, retried once at once"
SPLIT = "batch cut in two, both sent at once"
FAIL = "fails at once"

Install = Callable[[LogHubServer, int | None], object]


def fault(make: Callable[[], faults.Fault]) -> Install:
    """Return a function that installs a fault for the first ``times`` requests (None: for all)."""
    return lambda server, times: server.faults.add(make(), times=times, operation="PutLogs")


def refuse(status: int, code: str, body: bytes | None = None) -> Install:
    return fault(lambda: faults.answer(status, code, "as the test wants it", body=body))


@dataclass(frozen=True)
class Case:
    """One line of the matrix.

    :ivar name: the fault.
    :ivar install: installs the fault.
    :ivar code: the ``error_code`` of the attempt.
    :ivar reaction: the reaction of the producer.
    :ivar may_have_been_stored: the same field of the failed attempt; None if it depends on how much was sent.
    :ivar stored: True if the server keeps the batch of the failed attempt, so that a retry makes a duplicate.
    """

    name: str
    install: Install
    code: str
    reaction: str
    may_have_been_stored: bool | None = False
    stored: bool = False


def _answers() -> Iterator[Case]:
    for status, code in ((403, "WriteQuotaExceed"), (403, "ShardWriteQuotaExceed"), (403, "ExceedQuota")):
        yield Case(f"{status} {code}", refuse(status, code), code, HOLD)
    yield Case(
        "403 MetaOperationQpsLimitExceeded",
        refuse(403, "MetaOperationQpsLimitExceeded"),
        "MetaOperationQpsLimitExceeded",
        HOLD,
    )
    yield Case("429 without a body", refuse(429, "", b""), "BadResponse", HOLD)
    for status, code in ((500, "InternalServerError"), (500, "RequestTimeout"), (503, "ServerBusy")):
        yield Case(f"{status} {code}", refuse(status, code), code, BACKOFF, may_have_been_stored=True)
    yield Case("502 of a gateway, HTML", refuse(502, "", b"<html>Bad Gateway</html>"), "BadResponse", BACKOFF, True)
    yield Case("500 with an unknown code", refuse(500, "SomethingNew"), "SomethingNew", BACKOFF, True)
    yield Case("302 of a portal, HTML", refuse(302, "", b"<html>log in</html>"), "BadResponse", BACKOFF, True)
    yield Case("403 of a firewall, HTML", refuse(403, "", b"<html>blocked</html>"), "BadResponse", BACKOFF, True)
    yield Case("200 of a portal, HTML", fault(lambda: faults.raw_answer(_PORTAL)), "BadResponse", BACKOFF, True)
    yield Case("200 of a default site, no body", fault(lambda: faults.raw_answer(_SITE)), "BadResponse", BACKOFF, True)
    for status, code in ((400, "LogStoreWithoutShard"), (404, "ShardNotExist")):
        yield Case(f"{status} {code}", refuse(status, code), code, BACKOFF, may_have_been_stored=True)
    for code in ("Unauthorized", "SignatureNotMatch"):
        yield Case(f"401 {code}", refuse(401, code), code, REFRESH)
    for code in ("RequestTimeExpired", "RequestTimeTooSkewed", "InvalidRequestTime"):
        yield Case(f"400 {code}", refuse(400, code), code, AT_ONCE)
    yield Case("413 PostBodyTooLarge", refuse(413, "PostBodyTooLarge"), "PostBodyTooLarge", SPLIT)
    yield Case("400 PostBodyTooLarge (older servers)", refuse(400, "PostBodyTooLarge"), "PostBodyTooLarge", SPLIT)
    for status, code in _PERMANENT:
        yield Case(f"{status} {code}", refuse(status, code), code, FAIL)
    yield Case("407 of a proxy", refuse(407, "", b"<html>who?</html>"), "ProxyAuthenticationRequired", FAIL)
    yield Case("404 of a proxy, HTML", refuse(404, "", b"<html>not found</html>"), "BadResponse", FAIL)


_PORTAL = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\n\r\n<html>welcome</html>"
_SITE = b"HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: 0\r\n\r\n"

_PERMANENT = (
    (401, "InvalidAccessKeyId"),
    (400, "MissAccessKeyId"),
    (403, "ProjectForbidden"),
    (403, "Forbidden"),
    (404, "ProjectNotExist"),
    (404, "LogStoreNotExist"),
    (400, "PostBodyInvalid"),
    (400, "InvalidFormat"),
    (400, "ParameterInvalid"),
    (400, "MissingParameter"),
    (400, "InvalidContentType"),
    (400, "InvalidHost"),
    (400, "InvalidAPIVersion"),
    (400, "InvalidEncoding"),
    (400, "InvalidKey"),
    (400, "InvalidTimestamp"),
    (400, "PostBodyUncompressError"),
    (405, "InvalidMethod"),
    (400, "InvalidSequenceId"),
    (400, "ProjectQuotaExceed"),
    (400, "LogStoreAlreadyExist"),
    (400, "ProjectAlreadyExist"),
)


def _network() -> Iterator[Case]:
    yield Case("reset before the body is read", fault(lambda: faults.cut("before_body")), "RequestError", BACKOFF, None)
    yield Case("reset within the body", fault(lambda: faults.cut("in_body")), "RequestError", BACKOFF, True)
    yield Case("reset after the body", fault(lambda: faults.cut("after_body")), "RequestError", BACKOFF, True)
    yield Case(
        "closed without an answer", fault(lambda: faults.cut("after_body", reset=False)), "RequestError", BACKOFF, True
    )
    yield Case("stored, the answer lost", fault(faults.drop_answer), "RequestError", BACKOFF, True, stored=True)
    yield Case(
        "half a status line", fault(lambda: faults.half_answer(0.05)), "RequestError", BACKOFF, True, stored=True
    )
    yield Case("half a head", fault(lambda: faults.half_answer(0.9)), "RequestError", BACKOFF, True, stored=True)
    yield Case("an answer that is not HTTP", fault(faults.raw_answer), "RequestError", BACKOFF, True)
    yield Case(
        "no answer in time", fault(lambda: faults.delay(1.5, stored=True)), "SocketTimeout", BACKOFF, True, stored=True
    )


CASES = (*_answers(), *_network())


@contextmanager
def refused_port() -> Iterator[int]:
    """Reserve a port of this machine on which no server listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
