"""Refusals that blame rows, for Spark, ``ship`` and the agent."""

import pytest

from producer.model.results import Attempt, Result
from producer.spark.failure_reason import blames_rows


def _failed(code: str, status: int | None) -> Result:
    return Result(
        successful=False, attempts=(Attempt(success=False, error_code=code, http_status=status),), attempt_count=1
    )


@pytest.mark.parametrize(
    ("code", "status", "blamed"),
    [
        ("PostBodyTooLarge", 413, True),
        ("PostBodyInvalid", 400, True),
        ("ParameterInvalid", 400, True),
        ("ACodeOfNextYear", 400, True),
        ("InvalidSequenceId", 400, False),
        ("LogStoreNotExist", 404, False),
        ("ProjectForbidden", 403, False),
        ("AnyCode", 403, False),
        ("Unauthorized", 401, False),
        ("WriteQuotaExceed", 403, False),
        ("InternalServerError", 500, False),
        ("BadResponse", 400, False),
        ("BadResponse", 413, False),
        ("ProxyAuthenticationRequired", 407, False),
        ("RequestError", None, False),
        ("DeliveryAbandoned", None, False),
    ],
)
def test_a_refusal_of_loghub_that_no_operator_can_mend_blames_rows(
    code: str, status: int | None, *, blamed: bool
) -> None:
    """Only a refusal of LogHub that no operator can fix blames rows, whatever its code."""
    assert blames_rows(_failed(code, status)) is blamed
