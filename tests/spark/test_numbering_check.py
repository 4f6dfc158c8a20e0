"""``exactlyOnce`` checks the target's sequence numbers before the job."""

import logging

import pytest
from pyspark.sql.types import LongType, StructType

from producer import ConfigError
from producer.server import LogHubServer
from producer.server.faults import answer
from producer.spark.numbering_check import uses_up_numbers
from producer.spark.writing.options import WriteOptions
from producer.spark.writing.writers import plan
from tests.spark.writing.kit import LOGSTORE, PROJECT, rows, target, write

ONCE = {"deliveryGuarantee": "exactlyOnce"}


def asks(server: LogHubServer) -> bool:
    options = WriteOptions.from_mapping(target(server))
    return uses_up_numbers(options.target, options.config)


def asked(server: LogHubServer) -> list[tuple[int, str | None]]:
    return [(request.status, request.error_code) for request in server.requests]


def test_service_that_frees_the_numbers_of_refused_requests_is_good(server: LogHubServer) -> None:
    """A service that frees the numbers of refused requests is accepted; nothing is stored, and a later check
    succeeds, too.
    """
    for _ in range(2):
        assert not asks(server)
    assert asked(server) == [(400, "PostBodyInvalid")] * 4
    assert server.count(PROJECT, LOGSTORE) == 0


def test_the_question_does_not_frighten(server: LogHubServer, caplog: pytest.LogCaptureFixture) -> None:
    """The refusals of the check are not logged."""
    assert not asks(server)
    assert not caplog.records


def test_service_that_uses_up_the_numbers_of_refused_requests_is_refused() -> None:
    """A service that uses up the numbers of refused requests fails the job before it begins, with an alternative."""
    with LogHubServer(refused_takes_number=True) as server:
        options = {**target(server), **ONCE, "checkTarget": "true"}
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"deliveryGuarantee.*uses up the sequence numbers.*use atLeastOnce"):
                plan(options, StructType().add("n", LongType()), overwrite=False, streaming=False)
        assert server.count(PROJECT, LOGSTORE) == 0


def test_a_service_that_does_not_answer_the_check_does_not_fail_the_job(
    server: LogHubServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A service that does not answer the check does not fail the job."""
    server.faults.add(answer(403, "Unauthorized"))
    assert not asks(server)
    assert "cannot check whether" in caplog.text


def test_a_task_that_finds_its_rows_already_written_logs_their_number_partition_and_target(
    server: LogHubServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A task that finds its rows already written logs their number, partition and target."""
    with caplog.at_level(logging.WARNING, "loghub.spark.write"):
        write(server, rows(100), **ONCE)
        assert "already" not in caplog.text
        write(server, rows(100), **ONCE)
    assert "partition 0: 100 of 100 rows were already stored in" in caplog.text
