"""The ``fallback`` of a producer gets what was not delivered."""

import json
import logging
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producer import (
    ConfigError,
    LogItem,
    MemoryChannel,
    Producer,
    ProducerConfig,
    ProjectConfig,
    RejectedError,
    Result,
    Undelivered,
)
from producer.client import fallback as module
from producer.server import LogHubServer
from producer.testing import ScriptedSink
from tests.support.pipelines import config
from tests.support.sinks import GatedSink
from tests.support.waiting import PATIENCE

REFUSED = RejectedError("InvalidLog", "no", request_id="R1", http_status=400)


@pytest.fixture(scope="module")
def server() -> Iterator[LogHubServer]:
    with LogHubServer() as server:
        yield server


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"log_format": "json"}], ids=str)
def test_what_a_server_refuses_is_in_the_file(server: LogHubServer, tmp_path: Path, options: dict[str, str]) -> None:
    """With a wrong secret all logs are in the file, with their stream, time and code, and none with the right."""
    path = tmp_path / "undelivered.jsonl"
    right = server.connection
    secrets = ("wrong", right["access_key_secret"])
    for secret in secrets[:1] if options.get("log_format") else secrets:  # the embedded server takes no JSON
        project = ProjectConfig("my-project", **right | {"access_key_secret": secret})
        settings = ProducerConfig.from_mapping({"retries": 0, **options})
        with Producer(project, config=settings, fallback=path) as producer:
            stream = producer.stream("my-project", "app-log", topic="t", tags={"env": "test"})
            for n in range(3):
                stream.send(LogItem({"n": n, "m": "grüße"}, 1_700_000_000, 5))
    found = _lines(path)
    assert [line["n"] for line in found] == ["0", "1", "2"]
    assert found[0].pop("__source__")
    assert found[0].pop("__request_id__")
    assert found[0] == {
        "__time__": 1_700_000_000,
        "__project__": "my-project",
        "__logstore__": "app-log",
        "__topic__": "t",
        "__tag__:env": "test",
        "__error_code__": "SignatureNotMatch",
        "n": "0",
        "m": "grüße",
        "__time_ns_part__": 5,
    }


def test_a_function_gets_the_logs_of_each_failed_batch_and_its_result() -> None:
    """The function runs on a handler thread, before flush ends; the logs it gets can be sent again as they are."""
    told: list[tuple[Undelivered, Result, str]] = []

    def take(undelivered: Undelivered, result: Result) -> None:
        told.append((undelivered, result, threading.current_thread().name))

    sink = ScriptedSink([REFUSED])
    with Producer(sink=sink, config=config(), fallback=take) as producer:
        stream = producer.stream("p", "l", topic="t")
        stream.send([LogItem([("a", b"\xff"), ("a", "2")], 7, 8), {"b": 1}], urgent=True)
        producer.flush(PATIENCE)
        [(undelivered, result, thread)] = told
        assert (result.error_code, thread) == ("InvalidLog", f"{producer.name}-failure")
        assert (undelivered.key.logstore, undelivered.key.topic, len(undelivered)) == ("l", "t", 2)
        assert next(iter(undelivered)) == LogItem([("a", b"\xff"), ("a", "2")], 7, 8)
        assert producer.stats().memory_used == 0
        stream.send(list(undelivered), urgent=True).result(PATIENCE)
        first, second = (attempt.payload.body for attempt in sink.attempts)
        assert first.partition(b"\x32")[0] == second.partition(b"\x32")[0]
    assert len(told) == 1


def test_what_close_abandons_goes_to_the_fallback(tmp_path: Path) -> None:
    """Logs that are in flight, queued or open when close ends are in the file."""
    sink, path = GatedSink(), tmp_path / "undelivered.jsonl"
    settings = config(batch_count_threshold=1, io_thread_count=1)
    producer = Producer(sink=sink, config=settings, fallback=str(path))
    for n in range(3):
        producer.send("p", "l", {"n": n})
    assert sink.entered.acquire(timeout=PATIENCE)
    producer.close()
    sink.gate.set()
    assert [(line["n"], line["__error_code__"]) for line in _lines(path)] == [(n, "ProducerClosed") for n in "012"]


def test_a_handler_gets_a_record_of_each_log_with_its_level(caplog: pytest.LogCaptureFixture) -> None:
    """A handler of logging gets each log as a line of JSON at level ERROR, unless its own level is higher."""
    records: list[logging.LogRecord] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    for level in (logging.ERROR, logging.CRITICAL):
        with Producer(sink=ScriptedSink([REFUSED]), config=config(), fallback=Keeping(level)) as producer:
            producer.send("p", "l", [{"n": 1}, {"n": 2}])
    assert [json.loads(record.getMessage())["n"] for record in records] == ["1", "2"]
    assert {(record.name, record.levelname) for record in records} == {("loghub.undelivered", "ERROR")}
    assert "fallback failed" not in caplog.text


def test_an_error_in_the_fallback_is_logged_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outcomes, callbacks and memory are as without a fallback, also if it raises SystemExit or the disk is full."""

    def broken(_undelivered: Undelivered, _result: Result) -> None:
        raise SystemExit("out of here")

    monkeypatch.setattr(module, "FILE_BYTES", 1)
    unwritable = tmp_path / "there" / "file"
    unwritable.parent.mkdir()
    for fallback in (broken, unwritable):
        told: list[Result] = []
        with Producer(sink=ScriptedSink([REFUSED, REFUSED]), config=config(), fallback=fallback) as producer:
            unwritable.parent.rmdir() if fallback is unwritable else None
            for _ in range(2):
                future = producer.send("p", "l", {"n": 1}, callback=told.append, urgent=True)
                assert future.exception(PATIENCE).result.error_code == "InvalidLog"
            producer.flush(PATIENCE)
            assert producer.stats().memory_used == 0
        assert len(told) == 2
    lines = [line.getMessage() for line in caplog.records if "fallback" in line.getMessage()]
    assert lines == ["p/l: the fallback failed, and 1 undelivered log is lost"] * 2  # once each: further ones as sums


def test_a_slow_fallback_holds_memory_so_that_senders_wait() -> None:
    """The records of failed batches count as memory until the fallback has taken them."""
    gate, entered = threading.Event(), threading.Event()

    def slow(_undelivered: Undelivered, _result: Result) -> None:
        entered.set()
        assert gate.wait(PATIENCE)

    with Producer(sink=ScriptedSink([REFUSED] * 9), config=config(), fallback=slow) as producer:
        producer.send("p", "l", {"n": 1}, urgent=True)
        assert entered.wait(PATIENCE)
        producer.send("p", "l", {"m": "x" * 50_000}, urgent=True).exception(PATIENCE)
        assert producer.stats().memory_by_stage["callbacks"] > 50_000
        gate.set()
        producer.flush(PATIENCE)
        assert producer.stats().memory_used == 0


def test_an_invalid_fallback_is_refused_before_any_log_is_sent(tmp_path: Path) -> None:
    """A fallback beside a channel, of another type, or in a directory that is missing is a ConfigError."""
    with pytest.raises(ConfigError, match="fallback: must be None with a channel: dead_letter"):
        Producer(channel=MemoryChannel(), fallback=tmp_path / "x")
    with pytest.raises(ConfigError, match="fallback: must be a handler of logging, the path of a file, or a function"):
        Producer(fallback=7)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="fallback: must be a file in a directory that exists"):
        Producer(fallback=tmp_path / "none" / "x")


def test_a_fallback_by_path_is_pickled_with_the_producer(tmp_path: Path) -> None:
    """The copy of a pickled producer writes to the same file."""
    path = tmp_path / "undelivered.jsonl"
    with Producer(sink=_Refusing(), config=config(), fallback=path) as producer:
        copy = pickle.loads(pickle.dumps(producer))
        for n, each in enumerate((producer, copy)):
            each.send("p", "l", {"n": n}, urgent=True).exception(PATIENCE)
            each.close()
    assert [line["n"] for line in _lines(path)] == ["0", "1"]


class _Refusing(ScriptedSink):
    """A sink that refuses everything, and can be pickled."""

    def __reduce__(self) -> Any:
        return _Refusing, ()

    def __init__(self) -> None:
        super().__init__([REFUSED] * 3)
