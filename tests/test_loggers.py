"""The package's loggers: a defect in the application's logging is shown, and stops nothing."""

from __future__ import annotations

import logging

import pytest

from producer import loggers


def test_what_a_handler_raises_is_shown_and_stops_nothing(raising_handler: list[str]) -> None:
    """Also of a logger that the application had made before."""
    logging.getLogger("producer.made.before")
    for name in ("producer.made.before", "producer.made.here"):
        loggers.get_logger(name).warning("%s is told", name)
        assert f"a defect, at: {name} is told" in raising_handler[-1]


def test_what_a_filter_of_the_logger_raises_stops_nothing(shown_of_logging: list[str]) -> None:
    """It is the application's, too."""
    logger = loggers.get_logger("producer.filtered")

    def refuse(record: logging.LogRecord) -> bool:
        raise KeyError(record.name)

    logger.addFilter(refuse)
    logger.warning("told")
    logger.removeFilter(refuse)
    assert "KeyError" in shown_of_logging.pop()


def test_a_logger_that_is_asked_for_often_is_guarded_once(caplog: pytest.LogCaptureFixture) -> None:
    """And the line names the place that logged."""
    logger = loggers.get_logger("producer.often")
    guard = logger.handle
    assert loggers.get_logger("producer.often").handle is guard
    logger.warning("told")
    assert [(record.message, record.filename) for record in caplog.records] == [("told", "test_loggers.py")]


@pytest.mark.parametrize("wanted", [True, False])
def test_nothing_is_shown_where_the_application_wants_nothing(
    wanted: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``logging.raiseExceptions`` says so for its own handlers as well."""
    monkeypatch.undo()
    monkeypatch.setattr(logging, "raiseExceptions", wanted)
    try:
        raise ValueError("a defect")
    except ValueError:
        loggers.show()
    assert ("ValueError: a defect" in capsys.readouterr().err) is wanted
