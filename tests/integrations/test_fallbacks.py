"""A producer's fallback gets what integrations drop, and what their own producers cannot deliver."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producer import ConfigError, Producer, Result, Undelivered
from producer.integrations.logging import LogHubHandler
from producer.integrations.loguru import LogHubSink
from producer.integrations.opentelemetry import LogHubLogExporter
from producer.integrations.structlog import LogHubProcessor
from producer.server import LogHubServer
from tests.support.pipelines import config
from tests.support.sinks import GatedSink

Told = list[tuple[Undelivered, Result]]


@pytest.fixture
def hanging() -> Iterator[GatedSink]:
    sink = GatedSink()
    yield sink
    sink.gate.set()


def _full(sink: GatedSink, fallback: Any) -> Producer:
    """Return a producer whose memory is full."""
    producer = Producer(sink=sink, config=config(total_size_in_bytes=60_000), fallback=fallback)
    producer.send("p", "l", {"m": "x" * 45_000}, urgent=True)
    return producer


def _record(message: str) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": message, "name": "shop", "levelno": 40, "levelname": "ERROR"})


def test_a_log_that_finds_no_memory_goes_to_the_producers_fallback(hanging: GatedSink) -> None:
    """A dropped log of each integration is passed with its stream and the reason; a handler's own fallback precedes."""
    told: Told = []
    own: list[logging.LogRecord] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            own.append(record)

    with _full(hanging, lambda undelivered, result: told.append((undelivered, result))) as producer:
        handler = LogHubHandler(producer, "p", "app", topic="t")
        handler.handle(_record("y" * 20_000))
        LogHubProcessor(producer, "p", "events").send("info", {"event": "y" * 20_000, "who": object})
        LogHubHandler(producer, "p", "app", fallback=Keeping()).handle(_record("y" * 20_000))
        assert (handler.dropped, producer.stats().dropped) == (1, {"full": 3})
        hanging.gate.set()
    assert [(each.key.logstore, each.key.topic, len(each)) for each, _ in told] == [("app", "t", 1), ("events", "", 1)]
    assert dict(told[0][0].logs[0].contents)["message"] == "y" * 20_000
    assert [(result.successful, result.error_code) for _, result in told] == [(False, "SendTimeout")] * 2
    assert len(own) == 1


def test_a_fallback_that_logs_or_raises_does_not_reach_the_application(
    hanging: GatedSink, caplog: pytest.LogCaptureFixture
) -> None:
    """A fallback that logs through the integration that dropped is not called again; its error is logged."""
    calls = 0

    def fails(_undelivered: Undelivered, _result: Result) -> None:
        nonlocal calls
        calls += 1
        handler.handle(_record("z" * 20_000))
        raise OSError("no disk")

    with _full(hanging, fails) as producer:
        handler = LogHubHandler(producer, "p", "app")
        handler.handle(_record("y" * 20_000))
        hanging.gate.set()
    assert (calls, handler.dropped) == (1, 2)
    assert "p/app: the fallback failed, and 1 dropped log is lost: OSError: no disk" in caplog.text


def test_an_integration_with_its_own_producer_takes_a_fallback(tmp_path: Path) -> None:
    """The logs that an own producer cannot deliver are in the file; beside a given producer the option is refused."""
    path = tmp_path / "undelivered.jsonl"
    with LogHubServer() as server:
        where = server.connection | {"access_key_secret": "wrong"}
        processor = LogHubProcessor(
            project="p", logstore="events", config={"retries": 0}, fallback=path, drain_on_sigterm=False, **where
        )
        processor.send("info", {"event": "paid"})
        processor.close()
    [line] = [json.loads(text) for text in path.read_text().splitlines()]
    assert (line["message"], line["__logstore__"], line["__error_code__"]) == ("paid", "events", "SignatureNotMatch")
    with Producer() as producer:
        for kind in (LogHubProcessor, LogHubSink, LogHubLogExporter):
            with pytest.raises(ConfigError, match="fallback: must be None if a producer is given"):
                kind(producer, "p", "l", fallback=path)
