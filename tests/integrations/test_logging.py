"""``LogHubHandler`` under the real ``logging`` and a real server."""

import contextvars
import importlib
import inspect
import logging
import logging.config
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from producer import ConfigError, InvalidArgumentError, Producer, ProducerConfig
from producer.client import at_exit
from producer.integrations.logging import LogHubHandler
from producer.integrations.loguru import LogHubSink
from producer.integrations.opentelemetry import LogHubLogExporter, LogHubSpanExporter
from producer.integrations.outlet import Outlet, OutletOptions, OutletOptionsWithFallback, options_of
from producer.integrations.prometheus import LogHubCollector
from producer.integrations.structlog import LogHubProcessor
from producer.model.errors import RejectedError
from producer.runtime.internal_threads import at_work
from producer.server import LogHubServer
from producer.server.store.log_groups import StoredLog
from producer.testing import ScriptedSink
from producer.text.extras import how_to_install
from tests.integrations.conftest import PROJECT
from tests.support.sinks import GatedSink
from tests.support.waiting import PATIENCE, eventually

Arrived = Callable[[], list[StoredLog]]


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """Make a logger of the test's own, with no handlers."""
    logger = logging.getLogger("app.views")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    yield logger
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()


@pytest.fixture
def handler(producer: Producer, logstore: str, logger: logging.Logger) -> LogHubHandler:
    """Make a handler of the logger with the shared producer."""
    handler = LogHubHandler(producer, PROJECT, logstore, topic="web")
    logger.addHandler(handler)
    return handler


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.mark.usefixtures("handler")
def test_a_record_arrives_with_its_time_its_level_and_its_place(logger: logging.Logger, arrived: Arrived) -> None:
    """A record arrives with its time, its level and its place, under OpenTelemetry's names."""
    before = time.time()
    logger.warning("%d of %s", 3, "many")
    [log] = arrived()
    assert before <= log.time + log.time_ns / 1e9 <= time.time()
    assert log.topic == "web"
    assert log.fields.pop("code.line.number").isdigit()  # type: ignore[union-attr]
    assert {name: value for name, value in log.fields.items() if name != "code.line.number"} == {
        "message": "3 of many",
        "severity_text": "WARNING",
        "severity_number": "13",
        "logger": "app.views",
        "code.file.path": __file__,
        "code.function.name": "test_a_record_arrives_with_its_time_its_level_and_its_place",
        "thread.name": threading.current_thread().name,
        "process.pid": str(os.getpid()),
    }


def test_the_time_is_that_of_the_record(handler: LogHubHandler, arrived: Arrived) -> None:
    """A log has the record's time, and an invalid time is replaced."""
    record = logging.makeLogRecord({"msg": "late", "created": 1_700_000_000.25, "name": "app", "levelno": 20})
    handler.handle(record)
    handler.handle(logging.makeLogRecord({"msg": "before time", "created": -1.5, "name": "app", "levelno": 20}))
    late, odd = arrived()
    assert (late.time, late.time_ns) == (1_700_000_000, 250_000_000)
    assert abs(odd.time - time.time()) < 60


def test_levels_have_the_numbers_of_opentelemetry(handler: LogHubHandler, arrived: Arrived) -> None:
    """Levels have OpenTelemetry's numbers, also those in between and beyond."""
    levels = {0: "1", 5: "3", 10: "5", 20: "9", 25: "11", 30: "13", 40: "17", 50: "21", 99: "24"}
    for level in levels:
        handler.handle(logging.makeLogRecord({"msg": "x", "levelno": level, "name": "app"}))
    assert [log.fields["severity_number"] for log in arrived()] == list(levels.values())


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.usefixtures("handler")
def test_extra_becomes_fields_whatever_it_holds(logger: logging.Logger, arrived: Arrived) -> None:
    """``extra`` becomes fields of any type, and under ``extra.`` if the name is taken."""
    extra = {"user": 7, "tags": ["a", "b"], "who": {1}, "odd": Odd(), "cut": "a\ud800", "logger": "mine", "no": None}
    logger.info("x", extra=extra)
    [log] = arrived()
    assert log.fields["user"] == "7"
    assert log.fields["tags"] == '["a","b"]'
    assert log.fields["who"] == "[1]"
    assert log.fields["odd"] == "<Odd, whose repr raised RuntimeError>"
    assert log.fields["cut"] == "a\\ud800"
    assert (log.fields["logger"], log.fields["extra.logger"]) == ("app.views", "mine")
    assert "no" not in log.fields


@pytest.mark.usefixtures("handler")
def test_exceptions_and_stacks_are_fields(logger: logging.Logger, arrived: Arrived) -> None:
    """Exceptions and stacks become fields."""
    try:
        raise ValueError("too much")
    except ValueError:
        logger.exception("failed", stack_info=True)
    [log] = arrived()
    assert (log.fields["exception.type"], log.fields["exception.message"]) == ("ValueError", "too much")
    assert 'raise ValueError("too much")' in str(log.fields["exception.stacktrace"])
    assert "test_exceptions_and_stacks" in str(log.fields["code.stacktrace"])
    assert log.fields["message"] == "failed"


def test_the_contexts_variables_and_functions_are_read_when_a_record_is_logged(
    producer: Producer, logstore: str, logger: logging.Logger, arrived: Arrived
) -> None:
    """The context's variables and functions are read when a record is logged."""
    request = contextvars.ContextVar[str]("request")
    unset = contextvars.ContextVar[str]("unset")
    context = {"request_id": request, "unset": unset, "worker": lambda: 5}
    first = LogHubHandler(producer, PROJECT, logstore, context=context)
    logger.addHandler(first)
    request.set("r-1")
    logger.info("one")
    logger.removeHandler(first)
    logger.addHandler(LogHubHandler(producer, PROJECT, logstore, context=lambda: {"all": "here"}))
    logger.info("two")
    one, two = arrived()
    assert (one.fields["request_id"], one.fields["worker"], two.fields["all"]) == ("r-1", "5", "here")
    assert "unset" not in one.fields


def test_a_formatter_makes_the_message_and_a_dict_makes_fields(
    handler: LogHubHandler, logger: logging.Logger, arrived: Arrived
) -> None:
    """A formatter makes the message; without one a ``dict`` becomes fields."""
    logger.info({"event": "paid", "amount": 31.5})
    handler.setFormatter(logging.Formatter("[%(levelname)s] %(message)s"))
    logger.info({"event": "paid"})
    plain, formatted = arrived()
    assert (plain.fields["event"], plain.fields["amount"]) == ("paid", "31.5")
    assert "message" not in plain.fields
    assert formatted.fields["message"] == "[INFO] {'event': 'paid'}"


def test_a_message_with_invalid_arguments_is_reported_as_in_logging_and_sent(
    handler: LogHubHandler, arrived: Arrived, capsys: pytest.CaptureFixture[str]
) -> None:
    """A message with invalid arguments is reported as in ``logging``, and sent."""
    handler.handle(logging.LogRecord("app", 20, __file__, 1, "%d apples", ("no number",), None))
    [log] = arrived()
    assert log.fields["message"] == "%d apples (invalid arguments: ('no number',))"
    assert "--- Logging error ---" in capsys.readouterr().err


def test_arguments_nested_too_deeply_and_a_logger_without_a_name_raise_nothing(
    handler: LogHubHandler, arrived: Arrived
) -> None:
    """Arguments nested too deeply and a logger without a name raise nothing, and the records are sent."""
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"in": deep}
    handler.handle(logging.LogRecord("app", 20, __file__, 1, "%s", (deep, 1), None))
    handler.handle(logging.makeLogRecord({"msg": "nameless", "levelno": 20, "levelname": "INFO"}))
    assert [log.fields["message"].partition(" ")[0] for log in arrived()] == ["%s", "nameless"]


class UnspeakableError(Exception):
    """An exception whose message cannot be read."""

    def __str__(self) -> str:
        raise LookupError

    __repr__ = __str__


class Stranger:
    """An object like a request's proxy outside of a request."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("outside of a request")


def test_a_users_code_that_raises_in_a_message_exception_extra_or_context_loses_no_record(
    producer: Producer, logstore: str, logger: logging.Logger, arrived: Arrived, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user's code that raises in a message, exception, ``extra`` or context loses no record."""
    handler = LogHubHandler(producer, PROJECT, logstore, context={"broken": lambda: 1 // 0, "works": lambda: 5})
    logger.addHandler(handler)
    try:
        raise UnspeakableError
    except UnspeakableError:
        logger.exception("failed")
    for message, arguments in ((UnspeakableError(), ()), ("%s", (UnspeakableError(),))):
        handler.handle(logging.LogRecord("app", 20, __file__, 1, message, arguments, None))  # other handlers fail here
    logger.info("asked", extra={"request": Stranger()})
    logger.removeHandler(handler)
    logger.addHandler(LogHubHandler(producer, PROJECT, logstore, context=lambda: {}["no"]))
    logger.info("last")
    failed, odd, argument, asked, last = arrived()
    assert failed.fields["exception.message"] == "<exception str() failed>"
    assert odd.fields["message"] == "<UnspeakableError, whose repr raised LookupError>"
    assert argument.fields["message"] == "%s (invalid arguments: <tuple, whose repr raised LookupError>)"
    assert "Stranger" in str(asked.fields["request"])
    assert (asked.fields["works"], last.fields["message"]) == ("5", "last")
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_filters_and_levels_of_the_handler_count(
    handler: LogHubHandler, logger: logging.Logger, arrived: Arrived
) -> None:
    """The handler's filters and level apply, and a filter may add fields."""
    handler.setLevel("INFO")
    handler.addFilter(lambda record: setattr(record, "seen", True) or record.msg != "secret")
    for message in ("secret", "open"):
        logger.info(message)
    logger.debug("too low")
    [log] = arrived()
    assert (log.fields["message"], log.fields["seen"]) == ("open", "true")


def test_nothing_feeds_back(producer: Producer, logstore: str, arrived: Arrived) -> None:
    """The producer's own records, and those of HTTP libraries on its threads, are not sent; others are."""
    root, urllib3 = logging.getLogger(), logging.getLogger("urllib3.connectionpool")
    handler, kept = LogHubHandler(producer, PROJECT, logstore), Kept()
    handler.addFilter(lambda record: not record.name.startswith("uvicorn"))  # the server of this test logs, too
    levels = root.level, urllib3.level
    root.addHandler(handler)
    root.addHandler(kept)
    try:
        root.setLevel(logging.DEBUG)
        urllib3.setLevel(logging.DEBUG)
        logging.getLogger("app").info("mine")
        arrived()
        urllib3.debug("mine, too")
        logging.getLogger("loghub.lifecycle").error("its own")
        logging.getLogger("loghub").info("of a user's module with that name")
        with at_work():
            logging.getLogger("botocore.credentials").info("of a credentials provider")
        producer.send(PROJECT, logstore, {"message": "x"}, callback=lambda _: root.info("of a callback")).result(9)
        eventually(lambda: "of a callback" in [record.getMessage() for record in kept.records])
        logs = arrived()
    finally:
        root.setLevel(levels[0])
        urllib3.setLevel(levels[1])
        root.removeHandler(handler)
        root.removeHandler(kept)
        handler.close()
    sent = ["mine", "mine, too", "of a user's module with that name", "x", "of a callback"]
    assert [log.fields["message"] for log in logs] == sent


def _full(**options: Any) -> tuple[Producer, GatedSink]:
    """Make a producer with a full buffer, whose sends would wait for ever."""
    sink = GatedSink()
    config = ProducerConfig(total_size_in_bytes=20_000, max_block_ms=-1, linger_ms=100)
    producer = Producer(sink=sink, config=config)
    producer.send("p", "l", {"m": "x" * 15_000})
    return producer, sink


@pytest.mark.parametrize("by_name", [False, True])
def test_with_a_full_buffer_a_record_is_dropped_at_once_counted_reported_and_passed_to_the_fallback(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture, by_name: bool
) -> None:
    """With a full buffer a record is dropped at once, counted, reported and passed to the fallback."""
    producer, sink = _full()
    fallback = Kept()
    fallback.name = "spare"
    handler = LogHubHandler(producer, "p", "l", fallback="spare" if by_name else fallback)
    logger.addHandler(handler)
    for number in range(3):
        logger.info("record %d %s", number, "y" * 9_000)
    assert handler.dropped == 3
    assert [record.args[0] for record in fallback.records] == [0, 1, 2]  # type: ignore[index]
    assert [record.getMessage()[:53] for record in caplog.records if record.name == "loghub.integrations"] == [
        "p/l: 1 log could not be enqueued: no memory within 0."
    ]
    sink.gate.set()
    producer.close()


def test_with_on_full_wait_a_record_waits_for_memory_and_does_not_block_other_threads(logger: logging.Logger) -> None:
    """With ``on_full="wait"`` a record waits for memory, and does not block other threads."""
    producer, sink = _full()
    handler = LogHubHandler(producer, "p", "l", on_full="wait")
    logger.addHandler(handler)
    thread = threading.Thread(target=logger.info, args=("y" * 9_000,), daemon=True)
    thread.start()
    eventually(lambda: producer.stats().waiting_senders == 1)
    sink.gate.set()
    thread.join(PATIENCE)
    producer.close()
    assert (handler.dropped, len(sink.records())) == (0, 2)


def test_a_record_that_is_too_large_or_after_the_producers_close_goes_to_the_fallback(logger: logging.Logger) -> None:
    """A record that is too large, or after the producer's close, goes to the fallback."""
    producer, fallback = Producer(sink=GatedSink()), Kept()
    handler = LogHubHandler(producer, "p", "l", fallback=fallback)
    logger.addHandler(handler)
    logger.info("x" * 9 * 2**20)
    producer.close()
    logger.info("late")
    handler.flush()
    assert (handler.dropped, len(fallback.records)) == (2, 2)


@pytest.mark.usefixtures("handler")
def test_a_finalizer_that_logs_in_the_middle_of_a_send_neither_hangs_nor_loses(
    producer: Producer, logger: logging.Logger, arrived: Arrived
) -> None:
    """A finalizer that logs during a send neither deadlocks nor loses its record, which another thread sends."""
    logger.info("first")
    pipeline = producer._pipeline
    assert pipeline is not None
    with pipeline.pipeline.budget.lock if hasattr(pipeline, "pipeline") else pipeline.budget.lock:  # type: ignore[attr-defined]
        logger.info("inside %s", "x" * 300_000)  # larger than the memory granted in advance
    eventually(lambda: len(arrived()) == 2)


CONFIG = """
[loggers]
keys=root,paid
[handlers]
keys=loghub
[formatters]
keys=
[logger_root]
handlers=
[logger_paid]
qualname=app.paid
level=INFO
handlers=loghub
propagate=0
[handler_loghub]
class=producer.integrations.logging.LogHubHandler
kwargs={options!r}
"""


def test_an_invalid_option_in_dictconfig_is_written_to_the_standard_error_since_gunicorn_hides_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """An invalid option in ``dictConfig`` is written to the standard error, since gunicorn hides it."""
    handler = {"class": "producer.integrations.logging.LogHubHandler", "project": "shop", "logstore": "app-log"}
    with pytest.raises(ValueError, match="Unable to configure handler 'loghub'"):
        logging.config.dictConfig({"version": 1, "disable_existing_loggers": False, "handlers": {"loghub": handler}})
    assert "LogHubHandler: endpoint: must be given if no producer is" in capfd.readouterr().err
    with pytest.raises(ConfigError):
        LogHubHandler(project="shop", logstore="app-log")
    assert not capfd.readouterr().err  # a direct call raises the error


@pytest.mark.parametrize("kind", ["dictConfig", "fileConfig"])
def test_configured_it_has_a_producer_of_its_own_which_it_closes(
    kind: str, reach: dict[str, Any], loghub: LogHubServer, logstore: str, tmp_path: Path
) -> None:
    """A handler from ``dictConfig`` or ``fileConfig`` has its own producer, which the next configuration closes."""
    options = {**reach, "project": PROJECT, "logstore": logstore, "config": {"linger_ms": "100", "name": f"own-{kind}"}}
    before = logging.root.handlers[:], logging.root.level
    if kind == "dictConfig":
        loghub_handler = {"class": "producer.integrations.logging.LogHubHandler", "level": "INFO", **options}
        loghub_handler["context"] = {"pid": "ext://os.getpid"}
        paid = {"handlers": ["loghub"], "propagate": False, "level": "INFO"}
        settings = {"version": 1, "handlers": {"loghub": loghub_handler}, "loggers": {"app.paid": paid}}
        logging.config.dictConfig({**settings, "disable_existing_loggers": False})
    else:
        path = tmp_path / "logging.ini"
        path.write_text(CONFIG.format(options=options))
        logging.config.fileConfig(path, disable_existing_loggers=False)
    logger = logging.getLogger("app.paid")
    logger.info("configured")
    [own] = [each for each in (*logger.handlers, *logging.root.handlers) if isinstance(each, LogHubHandler)]
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})
    logger.handlers.clear()
    for handler in before[0]:
        logging.root.addHandler(handler)
    logging.root.setLevel(before[1])
    # Closed on a thread, since the call holds a lock that the delivery may need; and without waiting for its
    # collection.
    eventually(lambda: own.producer.closed)
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith(f"own-{kind}-")])
    [log] = loghub.logs(PROJECT, logstore)
    assert log.fields["message"] == "configured"
    assert log.fields.get("pid", str(os.getpid())) == str(os.getpid())


def test_a_handler_that_another_configuration_closed_opens_again(
    reach: dict[str, Any], loghub: LogHubServer, logstore: str, logger: logging.Logger
) -> None:
    """A handler that ``dictConfig`` closed opens again at the next record."""
    handler = LogHubHandler(project=PROJECT, logstore=logstore, config={"linger_ms": 100}, **reach)
    logger.addHandler(handler)
    producers = [handler.producer]
    logger.info("before")
    for number in range(2):
        if number:
            handler.close()
        else:
            logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})
        eventually(lambda: producers[-1].closed)
        logger.info("after %d", number)
        logger.info("after %d, too", number)
        producers.append(handler.producer)
    handler.close()
    assert [one.closed for one in producers] == [True] * 3
    assert len(set(producers)) == 3
    assert handler.dropped == 0
    arrived = [log.fields["message"] for log in loghub.logs(PROJECT, logstore)]
    assert sorted(map(str, arrived)) == ["after 0", "after 0, too", "after 1", "after 1, too", "before"]


def test_a_closed_handler_does_not_open_again_while_the_interpreter_exits(
    reach: dict[str, Any], logstore: str, logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed handler does not open again while the interpreter exits; its records are dropped and counted."""
    handler = LogHubHandler(project=PROJECT, logstore=logstore, **reach)
    logger.addHandler(handler)
    logger.info("before")
    handler.close()
    monkeypatch.setattr(at_exit, "_exited", True)
    logger.info("after")
    assert handler.dropped == 1
    assert handler.producer.stats().dropped == {"closed": 1}


def test_a_closed_handler_of_a_shared_producer_sends_on(
    handler: LogHubHandler, logger: logging.Logger, arrived: Arrived
) -> None:
    """A closed handler of a shared producer still sends."""
    handler.close()
    logger.info("after")
    assert [log.fields["message"] for log in arrived()] == ["after"]


def test_handlers_of_dictconfig_share_a_producer(producer: Producer, logstore: str, arrived: Arrived) -> None:
    """Handlers from ``dictConfig`` share a producer that they are given as an object."""
    shared = {"()": LogHubHandler, "producer": producer, "project": PROJECT, "logstore": logstore}
    handlers = {topic: shared | {"topic": topic} for topic in ("app", "audit")}
    loggers = {"shared": {"handlers": list(handlers)}}
    config = {"version": 1, "disable_existing_loggers": False, "handlers": handlers, "loggers": loggers}
    logging.config.dictConfig(config)
    logging.getLogger("shared").warning("paid")
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})
    assert sorted(log.topic for log in arrived()) == ["app", "audit"]
    assert not producer.closed


def test_dropped_records_are_counted_by_reason_in_stats(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    """Dropped records are counted by reason in ``stats()`` and metrics, and reported in one line at the end."""
    producer, sink = _full()
    registry = CollectorRegistry()
    registry.register(LogHubCollector(producer))
    handler = LogHubHandler(producer, "p", "l")
    logger.addHandler(handler)
    for size in (9_000, 9_000, 9_000_000):
        logger.info("y" * size)
    assert producer.stats().dropped == {"full": 2, "too_large": 1}
    assert producer.stats().to_dict()["dropped"] == {"full": 2, "too_large": 1}
    labels = {"producer": producer.name, "reason": "full"}
    assert registry.get_sample_value("loghub_producer_logs_dropped_total", labels) == 2
    sink.gate.set()
    producer.close()
    producer.close()
    ends = [record.getMessage() for record in caplog.records if record.name == "loghub.losses"]
    assert ends == [f"{producer.name}: in all 3 logs dropped by integrations (full: 2, too_large: 1)"]
    logger.info("late")
    handler.close()
    assert caplog.records[-1].getMessage().endswith("(closed: 1, full: 2, too_large: 1)")


def test_a_record_that_cannot_be_made_into_a_log_is_counted(
    producer: Producer, logstore: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each integration counts a record that cannot become a log, raises nothing, and sends the others."""
    fallback = Kept()
    handler = LogHubHandler(producer, PROJECT, logstore, fallback=fallback)
    handler.handle(logging.makeLogRecord({"msg": "x", "name": "app", "levelno": 20, "created": None}))
    processor = LogHubProcessor(producer, PROJECT, logstore)
    processor.send("info", {"event": "x", "level": "y", "exc_info": _Unasked()})
    exporter = LogHubSpanExporter(producer, PROJECT, logstore)
    exporter.export([_Broken()])  # type: ignore[list-item]
    assert (handler.dropped, processor.dropped, exporter.dropped) == (1, 1, 1)
    assert producer.stats().dropped == {"error": 3}
    assert len(fallback.records) == 1
    assert "Logging error" in capsys.readouterr().err


class _Unasked:
    def __bool__(self) -> bool:
        raise LookupError


class _Broken:
    """An object that has only a context of a span."""

    def get_span_context(self) -> None:
        """Return no context."""


def test_with_fallback_on_failure_the_fallback_gets_each_failed_record_once_and_no_delivered_one(
    logger: logging.Logger,
) -> None:
    """With ``fallback_on="failure"`` the fallback gets each failed record once, and no delivered one."""
    sink = ScriptedSink([None, RejectedError("Refused", "no")])
    producer = Producer(sink=sink, config=ProducerConfig(linger_ms=10_000, retries=0))
    asked, silent = Kept(), Kept()
    logger.addHandler(LogHubHandler(producer, "p", "l", fallback=asked, fallback_on="failure"))
    logger.addHandler(LogHubHandler(producer, "p", "l", fallback=silent))
    logger.info("delivered")
    producer.flush(PATIENCE)
    logger.info("refused")
    producer.flush(PATIENCE)
    assert producer.stats().failed_by_code == {"Refused": 2}
    producer.close()
    assert [record.getMessage() for record in asked.records] == ["refused"]
    assert not silent.records


def test_wrong_options_are_refused_with_their_names(producer: Producer, reach: dict[str, Any]) -> None:
    """An invalid option is refused with its name when the handler is made, without secrets."""
    with pytest.raises(ConfigError, match="endpoint: must be given if no producer is"):
        LogHubHandler(project="p", logstore="l")
    with pytest.raises(ConfigError, match="producer: must be None if an endpoint, a key or a config is given") as told:
        LogHubHandler(producer, "p", "l", **reach)
    assert reach["access_key_secret"] not in str(told.value)
    with pytest.raises(ConfigError, match="on_full: must be drop or wait, got 'block'"):
        LogHubHandler(producer, "p", "l", on_full="block")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="logstore: must be text that is not empty, got None"):
        LogHubHandler(producer, "p")
    with pytest.raises(ConfigError, match="linger_msec: unknown option; did you mean linger_ms"):
        LogHubHandler(project="p", logstore="l", config={"linger_msec": 5}, **reach)


def test_invalid_arguments_are_refused_when_the_handler_is_made(
    producer: Producer, reach: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project in the producer's place, a missing key and invalid values are refused when the handler is made."""
    with pytest.raises(ConfigError, match=r"producer: must be a Producer; .* got 'my-project'"):
        LogHubHandler("my-project", "app-log")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"producer: must be a Producer; .* got 'ProducerConfig'"):
        LogHubHandler(ProducerConfig(), "my-project", "app-log")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="flush_timeout: must be None or seconds, at least 0, got '10s'"):
        LogHubHandler(producer, "p", "l", flush_timeout="10s")
    with pytest.raises(ConfigError, match="context: must be a mapping of names, or a function that returns one, got 5"):
        LogHubHandler(producer, "p", "l", context=5)  # type: ignore[arg-type]
    monkeypatch.setenv("LOGHUB_ACCESS_KEY_ID", "id")
    monkeypatch.delenv("LOGHUB_ACCESS_KEY_SECRET", raising=False)
    with pytest.raises(
        ConfigError, match="access_key_id: must be given, or LOGHUB_ACCESS_KEY_SECRET be set in the env"
    ):
        LogHubHandler(project="p", logstore="l", endpoint=reach["endpoint"])


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"acess_key_id": "x"}, "acess_key_id: unknown option; did you mean access_key_id"),
        ({"access_key": "x"}, "access_key: unknown option; it is called access_key_secret here"),
        ({"contxt": 1}, "contxt: unknown option; did you mean context?"),
        ({"linger_ms": 500}, "linger_ms: is an option of the producer: config={'linger_ms': ...}"),
        ({"nonsense": 1}, "nonsense: unknown option; known options are producer, project, logstore, level, "),
    ],
)
def test_an_unknown_option_is_refused_with_the_closest_name(
    producer: Producer, option: dict[str, Any], told: str
) -> None:
    """An unknown option is refused with the closest name."""
    with pytest.raises(ConfigError) as caught:
        LogHubHandler(producer, "p", "l", **option)
    assert told in str(caught.value)


INTEGRATIONS = (LogHubHandler, LogHubSink, LogHubProcessor, LogHubLogExporter, LogHubSpanExporter)


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_editors_know_each_option_and_the_error_lists_each(integration: type) -> None:
    """The ``TypedDict`` and the errors have exactly the options of the outlet and of each integration."""
    taken = {name for name in inspect.signature(Outlet).parameters if name not in ("producer", "project", "logstore")}
    assert set(OutletOptionsWithFallback.__annotations__) == taken - {"on_full"}
    assert set(OutletOptions.__annotations__) == taken - {"on_full", "fallback"}  # a handler has one of its own
    own = set(inspect.signature(integration).parameters) - {"options"}
    assert not own & set(OutletOptions.__annotations__)
    assert own | taken <= set(options_of(integration))


def test_an_argument_of_a_wrong_type_is_refused_by_name(producer: Producer) -> None:
    """An argument of a wrong type is refused by name."""
    for option, value in (("tags", ["a"]), ("topic", 5), ("source", 5), ("fallback", 5), ("fallback_on", "never")):
        given: Any = {option: value}
        with pytest.raises((ConfigError, InvalidArgumentError), match=f"^{option}: must be "):
            LogHubHandler(producer, PROJECT, "l", **given)
    key: Any = {"access_key_id": "a", "access_key_secret": "b"}
    with pytest.raises(ConfigError, match=r"^config: must be "):
        LogHubHandler(None, PROJECT, "l", endpoint="http://localhost", config=5, **key)  # type: ignore[arg-type]


@pytest.fixture
def of_last_resort(monkeypatch: pytest.MonkeyPatch) -> Kept:
    """Collect the records of the handler of last resort."""
    kept = Kept()
    kept.setLevel(logging.WARNING)
    monkeypatch.setattr(logging, "lastResort", kept)
    return kept


def test_a_producers_record_goes_to_the_handler_of_last_resort_once(
    producer: Producer, logstore: str, of_last_resort: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer's record goes to the handler of last resort once, if only handlers to LogHub would get it."""
    handlers: list[logging.Handler] = [LogHubHandler(producer, PROJECT, logstore) for _ in range(2)]
    monkeypatch.setattr(logging.root, "handlers", [*handlers, logging.NullHandler()])
    log = logging.getLogger("loghub.send_task")
    log.warning("attempt 1 failed")
    log.info("of no interest")
    assert [record.getMessage() for record in of_last_resort.records] == ["attempt 1 failed"]
    logging.root.handlers.append(Kept())
    log.warning("attempt 2 failed")
    assert len(of_last_resort.records) == 1


def test_a_fallbacks_unknown_name_is_reported_at_the_first_record(
    producer: Producer, logstore: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A fallback's unknown name is reported at the first record."""
    handler = LogHubHandler(producer, PROJECT, logstore, fallback="consol")
    for _ in range(2):
        handler.handle(logging.makeLogRecord({"msg": "mine", "name": "app"}))
    assert caplog.text.count("fallback: there is no handler named 'consol'") == 1


@pytest.mark.parametrize(
    ("module", "missing"),
    [("structlog", "structlog"), ("opentelemetry", "opentelemetry"), ("prometheus", "prometheus_client")],
)
def test_an_integration_without_its_extra_says_what_to_install(
    module: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An integration without its extra says what to install."""
    name = f"producer.integrations.{module}"
    for loaded in [each for each in sys.modules if each.partition(".")[0] == missing or each == name]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError) as caught:
        importlib.import_module(name)
    assert how_to_install(module) in str(caught.value)


def _log_in_child(logger: logging.Logger) -> None:
    logger.info("child")


def test_a_forked_child_logs_its_own_records_and_none_of_its_parents(
    handler: LogHubHandler, logger: logging.Logger, arrived: Arrived
) -> None:
    """A forked child sends each of its own records once, and none of its parent's."""
    logger.info("parent")
    child = multiprocessing.get_context("fork").Process(target=_log_in_child, args=(logger,))
    child.start()
    child.join(PATIENCE)
    assert child.exitcode == 0
    child.close()
    assert sorted(str(log.fields["message"]) for log in arrived()) == ["child", "parent"]
    assert handler.dropped == 0


PROGRAM = """
import atexit, logging, sys
atexit.register(lambda: logging.getLogger("app").info("at exit, when the producers were drained"))
from producer.integrations.logging import LogHubHandler
endpoint, key, secret, logstore = sys.argv[1:]
keys = {"access_key_id": key, "access_key_secret": secret}
handler = LogHubHandler(project="my-project", logstore=logstore, endpoint=endpoint, **keys)
logging.basicConfig(level="INFO", handlers=[handler])
logging.getLogger("app").info("at work")
"""


def test_nothing_that_is_logged_until_the_very_end_of_a_process_is_lost(
    reach: dict[str, Any], loghub: LogHubServer, logstore: str
) -> None:
    """Records logged until the end of a process are delivered, even after the producers' drain."""
    command = [sys.executable, "-c", PROGRAM, *reach.values(), logstore]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [log.fields["message"] for log in loghub.logs(PROJECT, logstore)] == [
        "at work",
        "at exit, when the producers were drained",
    ]


SILENCED = """
import logging.config, sys
from loghub.testing import LogHubServer
import loghub.integrations.logging

quiet = logging.getLogger("loghub.stats")
quiet.disabled = True  # by the application: it stays so
with LogHubServer() as server:
    handler = {
        "class": "loghub.integrations.logging.LogHubHandler", "endpoint": server.endpoint,
        "project": "p", "logstore": "l", "access_key_id": "unknown", "access_key_secret": "s",
        "config": {"linger_ms": 100}, "fallback": "absent",
    }
    logging.config.dictConfig({"version": 1, "handlers": {"loghub": handler}, "root": {"handlers": ["loghub"]}})
    logging.getLogger("app").warning("hello")
    logging.shutdown()
print(quiet.disabled)
"""


def test_disable_existing_loggers_does_not_silence_the_producers_reports_of_failures() -> None:
    """``disable_existing_loggers`` does not silence the producer's reports of failures."""
    done = subprocess.run(
        [sys.executable, "-c", SILENCED], check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert "p/l: 1 record failed after 1 attempt: InvalidAccessKeyId" in done.stderr
    assert "fallback: there is no handler named 'absent'" in done.stderr
    assert done.stdout == "True\n"


def test_the_same_record_has_the_fields_that_queuedloghandler_of_aliyun_log_python_sdk_sends(
    producer: Producer, logstore: str, arrived: Arrived
) -> None:
    """The same record has the fields that ``QueuedLogHandler`` of aliyun-log-python-sdk sends by default."""
    handler = LogHubHandler(producer, PROJECT, logstore, field_names="aliyun-log")
    logger = logging.getLogger("shop.official")
    logger.addHandler(handler)
    logger.warning("low on %s", "stock", extra={"item": 17})
    [log] = arrived()
    # Source: DEFAULT_RECORD_LOG_FIELDS of aliyun-log-python-sdk 0.9.
    official = {"name", "levelname", "funcName", "module", "pathname"}
    official |= {"lineno", "process", "processName", "thread", "threadName"}
    assert set(log.fields) == {"message", "item", *official}
    assert (log.fields["levelname"], log.fields["name"], log.fields["message"]) == (
        "WARNING",
        "shop.official",
        "low on stock",
    )
    with pytest.raises(ConfigError, match="field_names: must be otel or aliyun-log, got 'sdk'"):
        LogHubHandler(producer, PROJECT, logstore, field_names="sdk")  # type: ignore[arg-type]
