"""``LogHubSink`` under the real loguru and a real server."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import loguru
import pytest
from loguru import logger

from producer import Producer, ProducerConfig
from producer.integrations.loguru import LogHubSink
from producer.runtime.internal_threads import at_work, in_callback
from producer.server import LogHubServer
from producer.server.store.log_groups import StoredLog
from tests.integrations.conftest import PROJECT
from tests.support.sinks import GatedSink
from tests.support.waiting import PATIENCE, eventually

Arrived = Callable[[], list[StoredLog]]


@pytest.fixture(autouse=True)
def _own_sinks() -> Iterator[None]:
    logger.remove()
    yield
    logger.remove()


def test_a_message_arrives_with_its_record(producer: Producer, logstore: str, arrived: Arrived) -> None:
    """A message arrives with time, level, place, exception and bound values."""
    sink = LogHubSink(producer, PROJECT, logstore, topic="web")
    logger.add(sink, format="{message}", level="TRACE")
    logger.bind(user=7, logger="mine").success("paid {amount}", amount=31.5)
    try:
        raise ValueError("too much")
    except ValueError:
        logger.exception("failed")
    paid, failed = arrived()
    assert paid.fields["message"] == "paid 31.5"
    assert (paid.fields["severity_text"], paid.fields["severity_number"]) == ("SUCCESS", "11")
    assert (paid.fields["user"], paid.fields["amount"]) == ("7", "31.5")
    assert (paid.fields["logger"], paid.fields["extra.logger"]) == (__name__, "mine")
    assert paid.fields["code.file.path"] == __file__
    assert paid.topic == "web"
    assert (failed.fields["exception.type"], failed.fields["exception.message"]) == ("ValueError", "too much")
    assert 'raise ValueError("too much")' in str(failed.fields["exception.stacktrace"])
    assert sink.dropped == 0


def test_a_message_with_an_exception_that_cannot_be_formatted_is_sent(
    producer: Producer, logstore: str, arrived: Arrived
) -> None:
    """A message with an exception that cannot be formatted is sent."""

    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise LookupError

    logger.add(LogHubSink(producer, PROJECT, logstore), format="{message}")
    try:
        raise UnspeakableError
    except UnspeakableError:
        logger.exception("failed")
    [log] = arrived()
    assert log.fields["exception.message"] == "<exception str() failed>"


def test_a_message_does_not_wait_for_the_one_before(producer: Producer, logstore: str) -> None:
    """A message does not wait for the one before, because the sink has no ``flush``."""
    logger.add(LogHubSink(producer, PROJECT, logstore), format="{message}")
    for number in range(100):
        logger.info("{}", number)
    producer.flush(PATIENCE)
    stats = producer.stats()
    assert stats.delivered == 100
    assert stats.attempts < 50, "each message was a request"


def test_the_time_is_that_of_the_record(producer: Producer, logstore: str, arrived: Arrived) -> None:
    """A log has the record's time to the microsecond."""
    times: list[Any] = []

    def remember(message: loguru.Message) -> None:
        times.append(message.record["time"])

    logger.add(remember, format="{message}")
    logger.add(LogHubSink(producer, PROJECT, logstore))
    logger.info("now")
    [log] = arrived()
    assert log.time * 1_000_000 + log.time_ns // 1000 == round(times[0].timestamp() * 1_000_000)


def test_records_of_a_producers_threads_that_are_forwarded_to_loguru_are_not_sent(
    producer: Producer, logstore: str, arrived: Arrived
) -> None:
    """Records of a producer's threads that are forwarded to loguru are not sent; those of a callback are."""
    logger.add(LogHubSink(producer, PROJECT, logstore))
    with at_work():
        logger.patch(lambda record: record.update(name="urllib3.connectionpool")).debug("Starting")
        logger.info("of a bridge that keeps no names")
        with in_callback():
            logger.info("of a callback")
    [log] = arrived()
    assert log.fields["message"] == "of a callback"


class ToLoguru(logging.Handler):
    """Forwards records of ``logging`` to loguru, as in its documentation."""

    def emit(self, record: logging.LogRecord) -> None:
        frame, depth = inspect.currentframe(), 0
        while frame is not None and (depth == 0 or frame.f_code.co_filename == logging.__file__):
            frame, depth = frame.f_back, depth + 1
        logger.opt(depth=depth).log(record.levelname, record.getMessage())


def test_the_report_of_dropped_messages_reaches_logurus_other_sinks_and_does_not_come_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The report of dropped messages reaches loguru's other sinks, and does not come back."""
    gated, said, own = GatedSink(), list[str](), logging.getLogger("loghub")
    handler = ToLoguru()
    own.addHandler(handler)
    try:
        config = ProducerConfig(total_size_in_bytes=60_000, linger_ms=1)
        with Producer(sink=gated, config=config) as producer:
            sink = LogHubSink(producer, PROJECT, "app-log")
            logger.add(sink)
            logger.add(said.append, level="WARNING", format="{message}")  # type: ignore[arg-type]
            for _ in range(3):
                logger.info("x" * 40_000)
            eventually(lambda: said)
            gated.gate.set()
    finally:
        own.removeHandler(handler)
    assert said[0].startswith(f"{PROJECT}/app-log: 1 log could not be enqueued: no memory")
    assert sink.dropped == 2
    assert len(gated.records()) == 1
    assert "Logging error" not in capsys.readouterr().err


def test_a_sink_that_made_its_producer_closes_it(loghub: LogHubServer, reach: dict[str, Any], logstore: str) -> None:
    """A sink that is removed closes its own producer, which delivers everything."""
    config = {"name": "own-loguru", "linger_ms": 100}
    number = logger.add(LogHubSink(project=PROJECT, logstore=logstore, config=config, **reach))
    logger.info("mine")
    logger.remove(number)
    assert loghub.count(PROJECT, logstore) == 1
    eventually(lambda: not [one for one in threading.enumerate() if one.name.startswith("own-loguru-")])


def test_a_sink_that_is_added_again_opens_again(loghub: LogHubServer, reach: dict[str, Any], logstore: str) -> None:
    """A sink that is added again opens another producer."""
    sink = LogHubSink(project=PROJECT, logstore=logstore, **reach)
    for message in ("first", "second"):
        number = logger.add(sink)
        logger.info(message)
        logger.remove(number)
    assert [log.fields["message"] for log in loghub.logs(PROJECT, logstore)] == ["first", "second"]
    assert sink.dropped == 0
