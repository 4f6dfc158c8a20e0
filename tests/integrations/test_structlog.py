"""``LogHubProcessor`` under the real structlog and a real server."""

import io
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from producer import Producer
from producer.integrations.structlog import LogHubProcessor
from producer.runtime.internal_threads import at_work, in_callback
from producer.server.store.log_groups import StoredLog
from tests.integrations.conftest import PROJECT

Arrived = Callable[[], list[StoredLog]]


@pytest.fixture(autouse=True)
def _own_configuration() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def sender(producer: Producer, logstore: str) -> LogHubProcessor:
    return LogHubProcessor(producer, PROJECT, logstore)


def test_an_event_arrives_with_its_keys(sender: LogHubProcessor, arrived: Arrived) -> None:
    """An event arrives with its keys, level, context, exception and numeric timestamp."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(),
            structlog.processors.format_exc_info,
            sender,
        ],
        logger_factory=sender.logger_factory(),
    )
    structlog.contextvars.bind_contextvars(request_id="r-1")
    log = structlog.get_logger().bind(user=7)
    log.warning("paid", amount=31.5, items=["a"], who={1})
    try:
        raise ValueError("too much")
    except ValueError:
        log.exception("failed", severity_text="mine")
    paid, failed = arrived()
    assert paid.fields == {
        "message": "paid",
        "severity_text": "WARNING",
        "severity_number": "13",
        "request_id": "r-1",
        "user": "7",
        "amount": "31.5",
        "items": '["a"]',
        "who": "[1]",
    }
    assert paid.time_ns
    assert "ValueError: too much" in str(failed.fields["exception.stacktrace"])
    assert (failed.fields["severity_text"], failed.fields["extra.severity_text"]) == ("ERROR", "mine")


EXCEPTION_FIELDS = {"exception.type", "exception.message", "exception.stacktrace"}


@pytest.mark.parametrize("before", [None, structlog.processors.format_exc_info, structlog.processors.dict_tracebacks])
def test_an_exception_has_the_fields_that_other_integrations_give_it(
    sender: LogHubProcessor, arrived: Arrived, before: Any
) -> None:
    """An exception has the common fields, from each form of ``exc_info`` and after a formatter."""
    structlog.configure(processors=[*([] if before is None else [before]), sender])
    log = structlog.get_logger()
    try:
        raise ValueError("too\nmuch")
    except ValueError as raised:
        error = raised
        log.exception("boom")
        log.error("boom", exc_info=error)
        log.error("boom", exc_info=(ValueError, error, error.__traceback__))
    for boom in arrived():
        assert {name for name in boom.fields if "exc" in name} == EXCEPTION_FIELDS
        assert (boom.fields["exception.type"], boom.fields["exception.message"]) == ("ValueError", "too\nmuch")
        assert "test_an_exception_has" in str(boom.fields["exception.stacktrace"])


def test_an_exception_that_another_processor_formatted_keeps_its_traceback(
    sender: LogHubProcessor, arrived: Arrived
) -> None:
    """An exception that another processor formatted keeps its traceback; another value of the name stays."""
    structlog.configure(processors=[structlog.processors.format_exc_info, sender])
    error = ZeroDivisionError("zero")
    try:
        raise error
    except ZeroDivisionError:
        pass
    structlog.get_logger().error("boom", exc_info=error)
    structlog.configure(processors=[sender])
    structlog.get_logger().info("own", exception="handled", exc_info=True)
    boom, own = arrived()
    assert str(boom.fields["exception.stacktrace"]).endswith("ZeroDivisionError: zero")
    assert {name: own.fields[name] for name in own.fields if name.startswith("exc")} == {"exception": "handled"}


class Unspeakable:
    def __str__(self) -> str:
        raise LookupError


@pytest.mark.parametrize("timestamp", [math.nan, math.inf, -5, 10**400, 1_700_000_000_000, "noon", True])
def test_nothing_is_raised_where_it_is_logged(sender: LogHubProcessor, arrived: Arrived, timestamp: Any) -> None:
    """An invalid timestamp or level raises nothing; the timestamp becomes a field."""
    structlog.configure(processors=[sender])
    structlog.get_logger().info("odd", timestamp=timestamp, level=Unspeakable())
    [log] = arrived()
    assert log.fields["message"] == "odd"
    assert "timestamp" in log.fields
    assert "UNSPEAKABLE" in str(log.fields["severity_text"])


def test_the_time_is_that_of_the_event(sender: LogHubProcessor, arrived: Arrived) -> None:
    """A log has the time of its numeric ``timestamp``, else of the call in nanoseconds."""
    structlog.configure(processors=[sender])
    structlog.get_logger().info("then", timestamp=1_700_000_000.25)
    before = time.time_ns()
    structlog.get_logger().info("now")
    then, now = arrived()
    assert (then.time, then.time_ns, "timestamp" in then.fields) == (1_700_000_000, 250_000_000, False)
    assert before <= now.time * 1_000_000_000 + now.time_ns <= time.time_ns()


def test_with_pass_on_the_event_is_sent_and_passed_to_the_next_processor(
    producer: Producer, logstore: str, arrived: Arrived
) -> None:
    """With ``pass_on`` the event is sent and passed to the next processor."""
    printed = io.StringIO()
    structlog.configure(
        processors=[LogHubProcessor(producer, PROJECT, logstore, pass_on=True), structlog.processors.JSONRenderer()],
        logger_factory=structlog.PrintLoggerFactory(printed),
    )
    structlog.get_logger().info("paid", amount=1)
    [log] = arrived()
    assert (log.fields["message"], log.fields["amount"]) == ("paid", "1")
    assert printed.getvalue() == '{"amount": 1, "event": "paid"}\n'


def test_the_loggers_of_the_factory_send_text_as_the_message_with_the_method_as_the_level(
    sender: LogHubProcessor, arrived: Arrived
) -> None:
    """The loggers of the factory send text as the message, with the method as the level."""
    structlog.configure(processors=[structlog.processors.JSONRenderer()], logger_factory=sender.logger_factory())
    structlog.get_logger().error("paid", amount=1)
    [log] = arrived()
    assert log.fields["message"] == '{"amount": 1, "event": "paid"}'
    assert (log.fields["severity_text"], log.fields["severity_number"]) == ("ERROR", "17")
    sender.flush()
    sender.close()
    assert sender.dropped == 0


def test_a_producers_own_records_are_not_sent_others_have_no_internal_fields_of_structlog(
    sender: LogHubProcessor, arrived: Arrived
) -> None:
    """A producer's own records are not sent; others have no internal fields of structlog."""
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_logger_name, sender], processors=[lambda *_: "seen"]
    )
    sender._pass_on = True

    def bring(name: str) -> str:
        return formatter.format(logging.makeLogRecord({"name": name, "msg": name, "thread": threading.get_ident()}))

    with at_work():
        said = [bring(name) for name in ("loghub.handler", "urllib3.connectionpool", "shop")]
        sender(None, "info", {"event": "named", "logger": "requests.sessions"})
        with in_callback():
            said.append(bring("shop.callback"))
    said += bring("urllib3.util"), bring("loghub.handler")
    assert said == ["seen"] * 6
    logs = arrived()
    assert [log.fields["message"] for log in logs] == ["shop.callback", "urllib3.util"]
    assert not {name for log in logs for name in log.fields if name.startswith("_")}


def test_a_field_logger_of_any_type_is_sent_as_its_repr(sender: LogHubProcessor, arrived: Arrived) -> None:
    """A field ``logger`` of any type is sent as its ``repr``."""

    class Odd:
        def __str__(self) -> str:
            raise RuntimeError

    with pytest.raises(structlog.DropEvent):
        sender(None, "info", {"event": "odd", "logger": Odd()})
    [log] = arrived()
    assert "Odd" in log.fields["logger"]


def test_a_processor_behind_a_renderer_sends_its_text(sender: LogHubProcessor, arrived: Arrived) -> None:
    """A processor after a renderer sends its text as the message."""
    with pytest.raises(structlog.DropEvent):
        sender(None, "warning", '{"event": "paid"}')  # type: ignore[arg-type]
    [log] = arrived()
    assert (log.fields["message"], log.fields["severity_text"]) == ('{"event": "paid"}', "WARNING")
