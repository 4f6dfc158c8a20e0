"""The reasons of failed deliveries, and whether rows are at fault."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.errors import BodyTooLargeError, RejectedError
from ..model.results import Result
from ..sinks.loghub.classify import BAD_RESPONSE, kind_of


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason why rows were refused.

    :ivar code: LogHub's error code, or the name of an error of this package.
    :ivar message: the error message.
    :ivar request_id: the request id for the service's support; may be empty.
    """

    code: str
    message: str
    request_id: str = ""

    def __str__(self) -> str:
        request = f" (request {self.request_id})" if self.request_id else ""
        return f"{self.code}: {self.message}{request}"


def reason_of(result: Result) -> Reason:
    """Return the reason of a failed delivery."""
    return Reason(result.error_code, result.error_message, result.request_id)


def blames_rows(result: Result) -> bool:
    """Return True if LogHub refused a request because of its rows, so that other rows may be accepted.

    Errors of the network, the credentials, the logstore, the sequence number or a proxy are not such a refusal.
    """
    return bool(result.attempts) and blames(result.error_code, result.attempts[-1].http_status)


def blames(code: str, status: int | None) -> bool:
    """Return True if an answer is LogHub's own refusal, and no operator can fix its cause.

    :param code: the error code of the answer.
    :param status: the HTTP status; None if no answer came.
    """
    return status is not None and code != BAD_RESPONSE and kind_of(code, status) in (RejectedError, BodyTooLargeError)
