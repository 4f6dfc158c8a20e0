"""A task outlasts quota errors, and fails soon for other errors."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from producer import AttemptError, MisconfiguredError, NetworkError, Producer, ProjectConfig, QuotaExceededError
from producer.model.config import ProducerConfig
from producer.model.errors import FlushTimeoutError
from producer.server.faults import answer
from producer.ship.job import ShipJob
from producer.spark.ack_timeout import defaults_of_task, send_open
from producer.spark.errors import DeliveryFailedError
from producer.spark.writing.options import ACK_TIMEOUT, WriteOptions
from producer.testing import ScriptedSink
from tests.spark.writing.kit import numbers, rows, write
from tests.support.clocks import JumpingClock
from tests.support.pipelines import KEY, record, threadless
from tests.support.sinks import GatedSink
from tests.support.waiting import PATIENCE, Call

if TYPE_CHECKING:
    from producer.server import LogHubServer

TARGET = {"endpoint": "http://127.0.0.1:9", "project": "p", "logstore": "l"}


def _config(**given: str) -> ProducerConfig:
    return WriteOptions.from_mapping({**TARGET, **given}).config


def _tried(errors: list[AttemptError], config: ProducerConfig) -> tuple[int, int, float]:
    """Return the number of attempts of a batch that met these errors, the number that succeeded, and the time."""
    clock, sink = JumpingClock(), ScriptedSink(list(errors))
    begun = clock.monotonic()
    options = {name: getattr(config, name) for name in ("retries", "max_retry_backoff_ms", "quota_timeout_ms")}
    pipeline = threadless(sink, clock, **options)
    pipeline.admission.accept(KEY, record(), 1, None)
    pipeline.flush(None)
    return len(sink.attempts), len(sink.deliveries), clock.monotonic() - begun


def test_a_task_outlasts_quotas_and_nothing_else() -> None:
    """200 quota refusals are waited out, a silent endpoint fails after 2.5 minutes, a wrong key at once."""
    attempts, arrived, seconds = _tried([QuotaExceededError("ShardWriteQuotaExceed", "x")] * 200, _config())
    assert (attempts, arrived) == (201, 1)
    assert seconds > 400
    attempts, arrived, seconds = _tried([NetworkError("RequestError", "x")] * 200, _config())
    assert (attempts, arrived) == (35, 0)
    assert 75 < seconds < 160
    for code in ("InvalidAccessKeyId", "ProjectNotExist"):
        attempts, arrived, _ = _tried([MisconfiguredError(code, "x")] * 200, _config())
        assert (attempts, arrived) == (1, 0)


def test_the_users_retries_delivery_timeout_ms_and_backoff_apply_also_to_quota_errors() -> None:
    """The user's ``retries``, ``delivery_timeout_ms`` and backoff apply, also to quota errors."""
    quotas = [QuotaExceededError("ShardWriteQuotaExceed", "x")] * 200
    assert _tried(quotas, _config(retries="3"))[:2] == (4, 0)
    assert _config(delivery_timeout_ms="5").quota_timeout_ms == 0
    own = _config(max_retry_backoff_ms="7")
    assert (own.max_retry_backoff_ms, own.retries) == (7, 10)
    assert _config(retries="3", quota_timeout_ms="9").quota_timeout_ms == 9
    assert (_config(max_block_ms="9").max_block_ms, _config(ackTimeout="9").max_block_ms) == (9, 9000)


def test_ship_waits_as_the_data_source_does() -> None:
    """The jobs of `ship` have the same defaults."""

    def config(**given: str) -> ProducerConfig:
        project = ProjectConfig("p", endpoint="http://127.0.0.1:9", access_key_id="a", access_key_secret="s")
        return ShipJob(project=project, logstore="l", producer=given).config

    waits = defaults_of_task({}, ACK_TIMEOUT)
    assert {name: getattr(config(), name) for name in waits} == waits
    assert config(retries="2").quota_timeout_ms == 0


def test_a_quota_that_refuses_more_often_than_there_are_retries_fails_no_task(server: LogHubServer) -> None:
    """More quota refusals than retries fail no task."""
    server.faults.add(answer(403, "WriteQuotaExceed"), times=30, operation="PutLogs")
    done = write(server, rows(10))
    assert (done.rows, done.attempts) == (10, 31)
    assert sorted(numbers(server)) == list(range(10))


def test_a_task_fails_when_one_acknowledgement_takes_too_long_and_not_because_all_take_long_together(
    server: LogHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task fails when one acknowledgement takes too long, and not because all take long together."""
    flush = Producer.flush

    def never_done(producer: Producer, timeout: float | None = None) -> None:
        with contextlib.suppress(FlushTimeoutError):
            flush(producer, 0)
        raise FlushTimeoutError(1, timeout or 0.0)

    monkeypatch.setattr(Producer, "flush", never_done)
    assert write(server, rows(10), linger_ms="60000").rows == 10


def test_a_task_that_waits_too_long_reports_the_last_attempts_error(server: LogHubServer) -> None:
    """A task that waits too long reports the last attempt's error."""
    server.faults.add(answer(403, "WriteQuotaExceed"), operation="PutLogs")
    with pytest.raises(DeliveryFailedError, match=r"not completed within 1\.0 s.*the last attempt: WriteQuotaExceed"):
        write(server, rows(10), ackTimeout="1")


def test_at_the_end_of_a_task_open_batches_are_sent_at_once_without_waiting_for_their_answers() -> None:
    """At the end of a task open batches are sent at once, without waiting for their answers."""
    sink = GatedSink()
    project = ProjectConfig("p", endpoint="http://127.0.0.1:9", access_key_id="a", access_key_secret="s")
    with Producer(project, config=ProducerConfig(linger_ms=60_000), sink=sink) as producer:
        future = producer.send("p", "l", {"n": "1"})
        try:
            Call(lambda: send_open(producer)).result()
            assert sink.entered.acquire(timeout=PATIENCE), "nothing was sent"
            assert not future.done()
        finally:
            sink.gate.set()
        assert future.result(PATIENCE).successful
