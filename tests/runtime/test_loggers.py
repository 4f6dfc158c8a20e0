"""Loggers: a fault in the application's logging is printed, and stops nothing."""

from __future__ import annotations

import logging
import threading

import pytest

from producer import NetworkError, Producer
from producer.runtime import loggers
from producer.testing import ScriptedSink
from tests.support.pipelines import config
from tests.support.waiting import PATIENCE, Call, eventually, passed


def test_an_exception_of_a_handler_is_printed_and_stops_nothing_also_for_an_existing_logger(
    raising_handler: list[str],
) -> None:
    """An exception of a handler is printed and stops nothing, also for an existing logger."""
    logging.getLogger("loghub.made.before")
    for name in ("loghub.made.before", "loghub.made.here"):
        loggers.get_logger(name).warning("%s is logged", name)
        assert f"a defect, at: {name} is logged" in raising_handler[-1]


def test_an_exception_of_a_filter_stops_nothing(shown_of_logging: list[str]) -> None:
    """An exception of a filter stops nothing."""
    logger = loggers.get_logger("loghub.filtered")

    def refuse(record: logging.LogRecord) -> bool:
        raise KeyError(record.name)

    logger.addFilter(refuse)
    logger.warning("told")
    logger.removeFilter(refuse)
    assert "KeyError" in shown_of_logging.pop()


def test_a_logger_is_guarded_once_and_the_record_names_the_logging_line(caplog: pytest.LogCaptureFixture) -> None:
    """A logger is guarded once, and the record names the logging line."""
    logger = loggers.get_logger("loghub.often")
    guard = logger.handle
    assert loggers.get_logger("loghub.often").handle is guard
    logger.warning("told")
    assert [(record.message, record.filename) for record in caplog.records] == [("told", "test_loggers.py")]


class Flushing(logging.Handler):
    """A handler that flushes the producer while it holds its own lock."""

    def __init__(self, producer: Producer) -> None:
        super().__init__()
        self.producer, self.lines, self.flushed = producer, list[str](), threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("loghub."):
            self.lines.append(record.getMessage())
            return
        self.producer.send("p", "l", {"message": record.getMessage()})
        self.producer.flush(PATIENCE)
        self.flushed.set()


def test_a_flushing_handler_does_not_block_delivering_threads_whose_records_are_logged_afterwards(
    request: pytest.FixtureRequest,
) -> None:
    """A flushing handler does not block delivering threads, whose records are logged afterwards."""
    sink = ScriptedSink([NetworkError("RequestError", "no route to host")])
    options = {"io_thread_count": 1, "linger_ms": 1, "base_retry_backoff_ms": 1, "max_retry_backoff_ms": 1}
    with Producer(sink=sink, config=config(**options)) as producer:
        handler = Flushing(producer)
        logging.getLogger().addHandler(handler)
        request.addfinalizer(lambda: logging.getLogger().removeHandler(handler))
        assert not Call(lambda: logging.getLogger("application").error("an error")).result(2 * PATIENCE)
        assert handler.flushed.is_set()
        eventually(lambda: any("attempt 1 failed" in line for line in handler.lines))
        eventually(lambda: not loggers._late.busy)


def test_waiting_records_are_logged_in_order_by_one_thread_at_most_the_newest_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Waiting records are logged in order by one thread, at most the newest ones."""
    monkeypatch.setattr(loggers, "_late", late := loggers._Late())
    lines, gate, begun = list[str](), threading.Event(), threading.Event()

    def handle(record: logging.LogRecord) -> None:
        begun.set()
        passed(gate)
        lines.append(record.msg)

    for number in range(loggers._MOST + 5):
        late.put(handle, logging.makeLogRecord({"msg": number}))
        passed(begun)
    gate.set()
    eventually(lambda: not late.busy)
    assert lines == [0, *range(5, loggers._MOST + 5)]


@pytest.mark.parametrize("wanted", [True, False])
def test_nothing_is_printed_if_logging_raiseexceptions_is_false(
    wanted: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is printed if ``logging.raiseExceptions`` is False."""
    monkeypatch.undo()
    monkeypatch.setattr(logging, "raiseExceptions", wanted)
    try:
        raise ValueError("a defect")
    except ValueError:
        loggers.show()
    assert ("ValueError: a defect" in capsys.readouterr().err) is wanted
