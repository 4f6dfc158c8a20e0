"""Retried failures are logged: at once, then ever more rarely, and when they end."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from producer import (
    CloseTimeoutError,
    NetworkError,
    Producer,
    ProducerConfig,
    ProjectConfig,
    QuotaExceededError,
)
from producer.channels import MemoryChannel
from producer.model.records import StreamKey
from producer.pipeline.sending.outage_log import LONGEST_INTERVAL, OutageLog
from producer.testing import ManualClock, ScriptedSink
from tests.support.answering import answering
from tests.support.pipelines import record, threadless
from tests.support.waiting import eventually

NO_ROUTE = NetworkError("RequestError", "no route to host")


def project(endpoint: str) -> ProjectConfig:
    return ProjectConfig("proj", endpoint=endpoint, access_key_id="id", access_key_secret="secret")


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@contextmanager
def hasty(producer: Producer) -> Iterator[Producer]:
    """Close the producer without waiting for undeliverable records; later tests see none of its log."""
    try:
        yield producer
    finally:
        with suppress(CloseTimeoutError):
            producer.close(timeout=0)
        eventually(lambda: not any(thread.name.startswith(f"{producer.name}-") for thread in threading.enumerate()))


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [("http://127.0.0.1:{port}", "refused"), ("http://no-such-host.invalid", "resolve 'proj.no-such-host.invalid'")],
    ids=["closed port", "unresolvable name"],
)
def test_with_all_defaults_the_log_has_place_failure_and_next_attempt_within_a_second(
    caplog: pytest.LogCaptureFixture, endpoint: str, words: str
) -> None:
    """With all defaults, the log has place, failure and next attempt within a second."""
    where = endpoint.format(port=closed_port())

    def seconds() -> float:
        caplog.clear()
        with hasty(Producer(project(where))) as producer:
            began = time.monotonic()
            producer.send("proj", "app-log", {"k": "v"})
            eventually(lambda: warnings_of(caplog), "a warning")
            return time.monotonic() - began

    with caplog.at_level(logging.INFO, "loghub"):
        eventually(lambda: seconds() < 1.0, "a warning within a second")
    first = warnings_of(caplog)[0]
    assert where in first
    assert "proj" in first
    assert "attempt 1 failed" in first
    assert "next attempt in 0." in first
    assert words in first


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "channel"])
@pytest.mark.parametrize(("status", "code"), [(503, "ServerBusy"), (401, "Unauthorized")])
def test_one_warning_with_the_answer_however_many_batches_fail(
    caplog: pytest.LogCaptureFixture, status: int, code: str, *, durable: bool
) -> None:
    """One WARNING with the answer, however many batches fail, and one INFO when a request is accepted again."""
    config = ProducerConfig(batch_count_threshold=1, base_retry_backoff_ms=10, max_retry_backoff_ms=20, retries=10_000)
    channel = MemoryChannel() if durable else None
    with (
        caplog.at_level(logging.INFO, "loghub"),
        answering(status, code, "not now") as server,
        hasty(Producer(project(server.endpoint), config=config, channel=channel)) as producer,
    ):
        futures = [producer.send("proj", "app-log", {"n": n}, topic=f"t{n}") for n in range(3)]
        eventually(lambda: len(server.asked) >= 3, "requests")
        server.answer = (200, "", "")
        for future in futures:
            future.exception(timeout=20)
    again = [record.getMessage() for record in caplog.records if "works again" in record.getMessage()]
    (line,) = warnings_of(caplog)
    assert f"{server.endpoint}: attempt 1 failed: {code}: not now" in line
    assert len(again) == 1
    assert server.endpoint in again[0]


def test_a_long_outage_says_less_and_less_but_never_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Lines come after 5, 10, 20 … seconds, at most a minute apart, and count the failures between them."""
    clock = ManualClock()
    log = OutageLog(clock)
    at = []
    with caplog.at_level(logging.WARNING, "loghub"):
        for second in range(301):
            before = len(caplog.messages)
            log.failed("p", NO_ROUTE, attempt=second, delay=1.0)
            if len(caplog.messages) > before:
                at.append(second)
            clock.advance(1)
    assert at == [0, 5, 15, 35, 75, 135, 195, 255]
    assert "19 more failed since the last such line" in caplog.messages[3]


def test_a_new_outage_after_a_long_one_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """A new outage after a long one is logged at once; an alternating one writes a few lines a minute."""
    clock = ManualClock()
    log = OutageLog(clock)
    with caplog.at_level(logging.INFO, "loghub"):
        for _ in range(2):
            log.failed("p", NO_ROUTE, attempt=1, delay=1.0)
            clock.advance(12)
            log.accepted("p")
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"] * 2
        assert "works again, after 12.0 s and 1 failed attempt" in caplog.messages[1]
        caplog.clear()
        for _ in range(int(LONGEST_INTERVAL) * 10):
            log.failed("p", NO_ROUTE, attempt=1, delay=1.0)
            clock.advance(0.05)
            log.accepted("p")
            clock.advance(0.05)
        assert 2 <= len(caplog.messages) <= 10


def test_one_logstore_over_its_quota_is_not_the_whole_destination(caplog: pytest.LogCaptureFixture) -> None:
    """A refusal for one logstore names it, and acceptances of another one do not end it."""
    busy = QuotaExceededError("WriteQuotaExceed", "slow down")
    sink = ScriptedSink(
        lambda delivery: busy if delivery.key.logstore == "full" and len(sink.attempts) < 6 else None for _ in range(9)
    )
    pipeline = threadless(sink, batch_count_threshold=1, base_retry_backoff_ms=1)
    with caplog.at_level(logging.INFO, "loghub"):
        for name in ("full", "other", "full"):
            pipeline.admission.accept(StreamKey("p", name), record(), 1, None)
        pipeline.flush(20)
    assert len(sink.records()) == 3
    said = [record.getMessage() for record in caplog.records if "attempt" in record.getMessage()]
    assert "p logstore full: attempt 1 failed" in said[0]
    assert "p logstore full: works again" in said[1]
    assert len(said) == 2


def test_while_nothing_fails_an_acceptance_only_reads_a_flag() -> None:
    """While nothing fails, an acceptance only reads a flag."""
    log = OutageLog(ManualClock())
    assert not log.any
    log.failed("p", NO_ROUTE, attempt=1, delay=1.0)
    assert log.any


def test_a_pause_of_milliseconds_is_not_shown_as_0(caplog: pytest.LogCaptureFixture) -> None:
    """A pause of milliseconds is not shown as 0."""
    with caplog.at_level(logging.WARNING, "loghub"):
        OutageLog(ManualClock()).failed("p", NO_ROUTE, attempt=1, delay=0.0051)
    assert "next attempt in 0.0051 s" in caplog.text
