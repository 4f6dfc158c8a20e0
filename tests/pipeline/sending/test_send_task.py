"""One attempt, with log handlers that raise."""

from __future__ import annotations

import pytest

from producer import (
    BodyTooLargeError,
    NetworkError,
    Producer,
    ProducerConfig,
    ProjectConfig,
    RejectedError,
    ResultFailedError,
)
from producer.testing import ScriptedSink, Step

NO_ROUTE = NetworkError("RequestError", "no route to host")
REFUSED = RejectedError("Refused", "no")
TOO_LARGE = BodyTooLargeError("PostBodyTooLarge", "too large")


@pytest.mark.parametrize(
    ("script", "code"),
    [([NO_ROUTE, None], None), ([REFUSED], "Refused"), ([TOO_LARGE, None, None], None)],
    ids=["tried again", "refused", "cut in two"],
)
def test_a_log_handler_that_raises_changes_no_outcome(
    script: list[Step], code: str | None, raising_handler: list[str]
) -> None:
    """The next attempt, the refusal or the halves decide the future's outcome, and the handler's error is shown."""
    project = ProjectConfig("p", endpoint="http://127.0.0.1", access_key_id="i", access_key_secret="s")
    config = ProducerConfig(linger_ms=1, base_retry_backoff_ms=1)
    with Producer(project, sink=ScriptedSink(script), config=config) as producer:
        futures = producer.stream("p", "l").send_many([{"a": "1"}, {"a": "2"}])
        errors = [future.exception(10) for future in futures]
    codes = {error.result.error_code if isinstance(error, ResultFailedError) else error for error in errors}
    assert codes == {code}
    assert raising_handler
