"""Whose fault a failed delivery is, and how that is said."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.errors import BodyTooLargeError, RejectedError
from ..model.results import Result
from ..sinks.loghub.classify import BAD_RESPONSE, kind_of


@dataclass(frozen=True, slots=True)
class Reason:
    """Why rows were refused.

    :ivar code: LogHub's, or the name of an error of this package.
    :ivar message: in words.
    :ivar request_id: for the service's support; may be empty.
    """

    code: str
    message: str
    request_id: str = ""

    def __str__(self) -> str:
        request = f" (request {self.request_id})" if self.request_id else ""
        return f"{self.code}: {self.message}{request}"


def reason_of(result: Result) -> Reason:
    """The reason of a failed delivery."""
    return Reason(result.error_code, result.error_message, result.request_id)


def blames_rows(result: Result) -> bool:
    """Whether LogHub refused a request for what its rows are, so that others may be accepted: not for the network, the
    credentials, a logstore that does not exist, a number, or a proxy on the way.
    """
    return bool(result.attempts) and blames(result.error_code, result.attempts[-1].http_status)


def blames(code: str, status: int | None) -> bool:
    """Whether an answer is a refusal that no operator can mend, of LogHub's own.

    :param code: of the answer's error.
    :param status: of the answer; None if none came.
    """
    return status is not None and code != BAD_RESPONSE and kind_of(code, status) in (RejectedError, BodyTooLargeError)
