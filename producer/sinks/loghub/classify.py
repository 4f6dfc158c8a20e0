"""Classification: maps an answer to one class of error, by the server's code first, then by the HTTP status.

Source: LogHub protocol, Error codes. ``docs/operations/errors.md`` describes the consequences; ``fault_matrix.md``
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
    # throttled
    "WriteQuotaExceed": QuotaExceededError,
    "ShardWriteQuotaExceed": QuotaExceededError,
    "ExceedQuota": QuotaExceededError,
    "MetaOperationQpsLimitExceeded": QuotaExceededError,
    # faults of the server
    "InternalServerError": ServerError,
    "ServerBusy": ServerError,
    "RequestTimeout": ServerError,
    "LogStoreWithoutShard": ServerError,  # a shard is being split
    "ShardNotExist": ServerError,
    # worth new credentials
    "Unauthorized": UnauthorizedError,
    "SignatureNotMatch": UnauthorizedError,
    "SecurityTokenExpired": UnauthorizedError,
    "InvalidSecurityToken": UnauthorizedError,
    # clocks
    "RequestTimeExpired": ClockSkewError,
    "RequestTimeTooSkewed": ClockSkewError,
    "InvalidRequestTime": ClockSkewError,
    # halves may fit
    "PostBodyTooLarge": BodyTooLargeError,
    # to be fixed by an operator
    "InvalidAccessKeyId": MisconfiguredError,
    "MissAccessKeyId": MisconfiguredError,
    "ProjectForbidden": MisconfiguredError,
    "ProjectNotExist": MisconfiguredError,
    "LogStoreNotExist": MisconfiguredError,
    "LogstoreNotExist": MisconfiguredError,
    # Written before, or another writer uses the key: the pipeline knows which.
    "InvalidSequenceId": InvalidSequenceError,
}

_BY_STATUS: dict[int, type[AttemptError]] = {
    401: UnauthorizedError,
    407: MisconfiguredError,
    408: ServerError,
    413: BodyTooLargeError,
    429: QuotaExceededError,
}

# The maximum number of characters of a message kept with each attempt: results live as long as their batches.
_MAX_CODE, _MAX_MESSAGE = 128, 1024
# The maximum number of characters of an answer that is not from LogHub.
_SHOWN = 200

#: The code of an answer that is not a LogHub error: no JSON, or other JSON.
BAD_RESPONSE = "BadResponse"


def is_acknowledgement(answer: Answer) -> bool:
    """True if the answer is LogHub's 200, which always has a request id.

    A portal, a default site or another server also answers 200, with or without a page, and has stored nothing.
    """
    return answer.status == 200 and bool(answer.request_id)


def error_of_answer(answer: Answer, headers: Mapping[str, str], way: str = "") -> AttemptError:
    """Return the error of an answer that is not an acknowledgement.

    :param headers: the headers of the answer, by name in any case.
    :param way: the part of the error that names a proxy, which may have sent the answer.
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
        # A failing server, or one behind a failing gateway, may have stored the batch before it failed.
        may_have_been_stored=answer.status >= 500 or kind is ServerError,
    )


def kind_of(code: str, status: int) -> type[AttemptError]:
    """Return the class of error of a code and an HTTP status.

    :param code: LogHub's ``errorCode``, or :data:`BAD_RESPONSE`.
    """
    return _BY_CODE.get(code) or _BY_STATUS.get(status) or _general(code, status)


def _general(code: str, status: int) -> type[AttemptError]:
    """Return the class for an unknown code and status: a refusal is permanent; other answers may be a proxy's, and are
    retried.
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
