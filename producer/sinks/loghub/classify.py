"""From an answer to one class of error: the server's code first, then the HTTP status.

Source: LogHub protocol, Error codes. ``docs/operations/errors.md`` tells what follows; ``fault_matrix.md``
beside the tests has each code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus

from ...model.errors import (
    AttemptError,
    BodyTooLargeError,
    ClockSkewError,
    InvalidSequenceError,
    MisconfiguredError,
    QuotaExceededError,
    RejectedError,
    ServerError,
    UnauthorizedError,
)
from ...text.printable import one_line
from ..http.failures import elsewhere, error_of_proxy, page_of
from ..http.transport import Answer

_BY_CODE: dict[str, type[AttemptError]] = {
    # Slow down.
    "WriteQuotaExceed": QuotaExceededError,
    "ShardWriteQuotaExceed": QuotaExceededError,
    "ExceedQuota": QuotaExceededError,
    "MetaOperationQpsLimitExceeded": QuotaExceededError,
    # The server's own trouble.
    "InternalServerError": ServerError,
    "ServerBusy": ServerError,
    "RequestTimeout": ServerError,
    "LogStoreWithoutShard": ServerError,  # a shard is being split
    "ShardNotExist": ServerError,
    # Worth fresh credentials.
    "Unauthorized": UnauthorizedError,
    "SignatureNotMatch": UnauthorizedError,
    "SecurityTokenExpired": UnauthorizedError,
    "InvalidSecurityToken": UnauthorizedError,
    # Clocks.
    "RequestTimeExpired": ClockSkewError,
    "RequestTimeTooSkewed": ClockSkewError,
    "InvalidRequestTime": ClockSkewError,
    # Halves may fit.
    "PostBodyTooLarge": BodyTooLargeError,
    # Somebody has to mend these.
    "InvalidAccessKeyId": MisconfiguredError,
    "MissAccessKeyId": MisconfiguredError,
    "ProjectForbidden": MisconfiguredError,
    "ProjectNotExist": MisconfiguredError,
    "LogStoreNotExist": MisconfiguredError,
    "LogstoreNotExist": MisconfiguredError,
    # Written before, or somebody else's key: the pipeline knows which.
    "InvalidSequenceId": InvalidSequenceError,
}

_BY_STATUS: dict[int, type[AttemptError]] = {
    401: UnauthorizedError,
    407: MisconfiguredError,
    408: ServerError,
    413: BodyTooLargeError,
    429: QuotaExceededError,
}

# What is kept of each attempt, characters: results live as long as their batches.
_MAX_CODE, _MAX_MESSAGE = 128, 1024
# Of what no LogHub says, characters.
_SHOWN = 200

#: The code of an answer that is no LogHub error: no JSON, or not the JSON of an error.
BAD_RESPONSE = "BadResponse"


def is_acknowledgement(answer: Answer) -> bool:
    """Whether the answer is LogHub's 200, which always has an id: a portal, a default site and a server of something
    else say 200 as well, with a page or without, and have stored nothing.
    """
    return answer.status == 200 and bool(answer.request_id)


def error_of_answer(answer: Answer, headers: Mapping[str, str], way: str = "") -> AttemptError:
    """The error that an answer other than an acknowledgement stands for.

    :param headers: of the answer, by name in whatever case.
    :param way: what is said of the proxy that may have given it.
    """
    if answer.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        return error_of_proxy(way)
    code, message = _parse(answer, headers, way)
    kind = kind_of(code, answer.status)
    return kind(
        code,
        message,
        http_status=answer.status,
        request_id=answer.request_id[:_MAX_CODE],
        # A server that fails, or a gateway before it, may have stored the batch before.
        may_have_been_stored=answer.status >= 500 or kind is ServerError,
    )


def kind_of(code: str, status: int) -> type[AttemptError]:
    """The class of error that a code and an HTTP status stand for.

    :param code: LogHub's ``errorCode``, or :data:`BAD_RESPONSE`.
    """
    return _BY_CODE.get(code) or _BY_STATUS.get(status) or _general(code, status)


def _general(code: str, status: int) -> type[AttemptError]:
    """For codes and statuses that no table knows: a refusal stays one; what makes no sense may be a proxy's, and
    pass.
    """
    if code == BAD_RESPONSE:
        return RejectedError if status in {400, 404, 405} else ServerError
    if status == 403:
        return MisconfiguredError
    return RejectedError if 400 <= status < 500 else ServerError


def _parse(answer: Answer, headers: Mapping[str, str], way: str) -> tuple[str, str]:
    try:
        data = json.loads(answer.body)
        code, message = str(data["errorCode"])[:_MAX_CODE], str(data.get("errorMessage", ""))[:_MAX_MESSAGE]
        return one_line(code)[:_MAX_CODE], one_line(message)[:_MAX_MESSAGE]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        start = page_of(answer.body, _SHOWN)
        lacking = "x-log-requestid, which is in every answer of LogHub" if answer.status == 200 else "a LogHub error"
        moved = elsewhere(answer.status, headers)
        return BAD_RESPONSE, f"HTTP {answer.status} without {lacking}{way}{moved}: {start!r}"
