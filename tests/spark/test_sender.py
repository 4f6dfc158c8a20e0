"""PartitionSender: leaving the block means that every record is acknowledged, or an error that says everything."""

from __future__ import annotations

import pytest

from producer import LogItem, ProducerConfig
from producer.server import LogHubServer
from producer.server.faults import answer, delay
from producer.spark.errors import DeliveryFailedError
from producer.spark.sender import PartitionSender

from .conftest import LOGSTORE, PROJECT, project_of


def sender_to(server: LogHubServer, *, ack_timeout: float = 60, **options: object) -> PartitionSender:
    config = ProducerConfig.from_mapping({"linger_ms": 60_000, "base_retry_backoff_ms": 10, **options})
    return PartitionSender(project_of(server), LOGSTORE, config=config, ack_timeout=ack_timeout)


def test_block_ends_when_everything_is_acknowledged(server: LogHubServer) -> None:
    """On leaving the block the server holds every record, however long batches may linger."""
    with sender_to(server) as sender:
        for number in range(3000):
            sender.send({"n": number})
    assert server.count(PROJECT, LOGSTORE) == 3000


def test_finish_counts_what_was_acknowledged(server: LogHubServer) -> None:
    """Records, batches and attempts are those of this sender, though its producer served others before."""
    with sender_to(server, batch_count_threshold=100) as first:
        first.send({"n": -1})
    sender = sender_to(server, batch_count_threshold=100)
    for number in range(250):
        sender.send(LogItem({"n": number}))
    delivered = sender.finish()
    assert (delivered.records, delivered.batches, delivered.attempts, delivered.retries) == (250, 3, 3, 0)


def test_nothing_sent_is_nothing_to_wait_for(server: LogHubServer) -> None:
    """An empty partition ends at once and makes no request."""
    assert sender_to(server).finish().records == 0
    assert server.requests == []


def test_refused_record_fails_the_block_and_says_everything(server: LogHubServer) -> None:
    """Count, target, code, message, request id and position stand in one line of text."""
    server.faults.add(answer(400, "PostBodyInvalid", "no good"))
    sender = sender_to(server)
    for number in range(5):
        sender.send({"n": number}, position=f"/logs/a byte {number}")
    with pytest.raises(DeliveryFailedError) as raised:
        sender.finish()
    text = str(raised.value)
    request_id = server.requests[-1].request_id
    assert "\n" not in text
    for said in (
        "5 records (/logs/a byte 0 to /logs/a byte 4)",
        f"{PROJECT}/{LOGSTORE} at {server.endpoint}",
        "PostBodyInvalid: no good",
        f"request id {request_id}",
        "Acknowledged by this task before: 0",
    ):
        assert said in text


def test_error_contains_no_secret(server: LogHubServer) -> None:
    """Wrong credentials are told without being shown."""
    server.access_keys[server.access_key_id] = "another secret"
    project = project_of(server)
    server.access_keys[server.access_key_id] = "changed since"
    sender = PartitionSender(project, LOGSTORE, config=ProducerConfig(retries=0))
    sender.send({"n": 1})
    with pytest.raises(DeliveryFailedError) as raised:
        sender.finish()
    assert "another secret" not in str(raised.value)
    assert "another secret" not in repr(raised.value.__cause__)


def test_failure_of_an_early_batch_is_not_covered_by_the_success_of_a_late_one(server: LogHubServer) -> None:
    """Every acknowledgement counts, not only the last one."""
    server.faults.add(answer(400, "PostBodyInvalid"), times=1)
    sender = sender_to(server, batch_count_threshold=100)
    for number in range(5000):
        sender.send({"n": number})
    with pytest.raises(DeliveryFailedError):
        sender.finish()


def test_missing_acknowledgement_fails_after_the_timeout(server: LogHubServer) -> None:
    """A server that does not answer within the time fails the task; it does not hang for ever."""
    server.faults.add(delay(3))
    sender = sender_to(server, ack_timeout=0.2)
    sender.send({"n": 1}, position="here")
    with pytest.raises(DeliveryFailedError, match=r"1 records \(here\) .* after 0\.200 s"):
        sender.finish()


def test_record_that_cannot_be_sent_is_told_with_its_place(server: LogHubServer) -> None:
    """A record larger than the producer's memory is an error that names both sizes and the place."""
    sender = sender_to(server, total_size_in_bytes=10_000)
    with pytest.raises(DeliveryFailedError, match=r"\(/logs/a byte 7\).*limit is \d+ bytes"):
        sender.send({"content": "x" * 2_000_000}, position="/logs/a byte 7")


def test_error_in_the_block_is_passed_on_without_waiting(server: LogHubServer) -> None:
    """What went wrong in the caller's loop is what the caller sees."""
    server.faults.add(delay(3))

    def fail_after_a_record() -> None:
        with sender_to(server) as sender:
            sender.send({"n": 1})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_a_record()
