"""Whose fault a failed delivery is, and how that is said."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.results import Result

# What LogHub says of a LogGroup that it does not take.
_FOR_ROWS = frozenset(
    {"PostBodyTooLarge", "PostBodyInvalid", "InvalidEncoding", "InvalidFormat", "InvalidKey", "InvalidTimestamp"}
)


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
    credentials, a logstore that does not exist, or a proxy on the way.
    """
    return blames_code(result.error_code)


def blames_code(code: str) -> bool:
    """Whether this error code is about rows."""
    return code in _FOR_ROWS
