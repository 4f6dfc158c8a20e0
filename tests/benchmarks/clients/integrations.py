"""What applications log with, in front of this project's producer: ``logging``, structlog, loguru, OpenTelemetry; and
``logging.FileHandler`` beside them.

``python -m tests.benchmarks.clients.integrations``. A record is a message and the log's fields, as each library has
them: ``extra=``, keyword arguments, ``bind``, attributes. All options have their defaults, but who has no memory left
waits. What is timed ends when everything is delivered, or in the file.
"""

from __future__ import annotations

import functools
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from producer import Producer, ProjectConfig

from ..shapes import Log, logs_of, streams_of
from .protocol import Answer, Job, paced, quantiles_of, serve, timed

MESSAGE = "request served"

#: Logs one record; how many of them are known to have come through, once all have been waited for.
Front = tuple[Callable[[Log], object], Callable[[], int]]


@contextmanager
def _producer(job: Job) -> Iterator[Producer]:
    project = ProjectConfig("p", endpoint=f"http://{job.address}", access_key_id="a", access_key_secret="s")
    with Producer(project) as producer:
        yield producer


def _delivered(producer: Producer) -> int:
    producer.flush()
    return producer.stats().delivered


def _stream(job: Job) -> dict[str, str]:
    [(topic, source)] = streams_of(job.streams)
    return {"topic": topic, "source": source}


def _logger(handler: logging.Handler) -> Callable[[Log], object]:
    logger = logging.Logger("app.views", logging.INFO)  # noqa: LOG001 - of this job alone
    logger.addHandler(handler)
    return lambda log: logger.info(MESSAGE, extra=log)


@contextmanager
def with_logging(job: Job) -> Iterator[Front]:
    """``LogHubHandler``."""
    from producer.integrations.logging import LogHubHandler

    with _producer(job) as producer:
        handler = LogHubHandler(producer, "p", "bench", on_full="wait", **_stream(job))
        yield _logger(handler), functools.partial(_delivered, producer)
        handler.close()


@contextmanager
def with_structlog(job: Job) -> Iterator[Front]:
    """``LogHubProcessor`` behind the level."""
    import structlog

    from producer.integrations.structlog import LogHubProcessor

    with _producer(job) as producer:
        last = LogHubProcessor(producer, "p", "bench", on_full="wait", **_stream(job))
        logger = structlog.wrap_logger(None, processors=[structlog.processors.add_log_level, last])
        yield lambda log: logger.info(MESSAGE, **log), functools.partial(_delivered, producer)


@contextmanager
def with_loguru(job: Job) -> Iterator[Front]:
    """``LogHubSink``, alone."""
    from loguru import logger

    from producer.integrations.loguru import LogHubSink

    with _producer(job) as producer:
        logger.remove()
        number = logger.add(LogHubSink(producer, "p", "bench", on_full="wait", **_stream(job)), format="{message}")
        yield lambda log: logger.bind(**log).info(MESSAGE), functools.partial(_delivered, producer)
        logger.remove(number)


@contextmanager
def with_opentelemetry(job: Job) -> Iterator[Front]:
    """``LogHubLogExporter`` behind the simple processor: the batching one drops records when its queue is full."""
    from opentelemetry._logs import SeverityNumber
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor

    from producer.integrations.opentelemetry import LogHubLogExporter

    with _producer(job) as producer:
        provider = LoggerProvider(shutdown_on_exit=False)
        exporter = LogHubLogExporter(producer, "p", "bench", **_stream(job))
        provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
        logger = provider.get_logger("app.views")

        def emit(log: Log) -> None:
            now = time.time_ns()
            logger.emit(timestamp=now, severity_number=SeverityNumber.INFO, body=MESSAGE, attributes=log)

        yield emit, functools.partial(_delivered, producer)
        provider.shutdown()


_FORMAT = (
    "%(asctime)s %(levelname)s %(name)s %(pathname)s %(funcName)s %(lineno)d %(threadName)s %(process)d %(message)s "
)


@contextmanager
def with_file(job: Job) -> Iterator[Front]:
    """``FileHandler``: as many fields, a line each."""
    names = logs_of(job.shape)[0]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "app.log")
        handler = logging.FileHandler(path)
        handler.setFormatter(logging.Formatter(_FORMAT + " ".join(f"%({name})s" for name in names)))

        def lines() -> int:
            handler.flush()
            with path.open("rb") as file:
                return sum(1 for _ in file)

        yield _logger(handler), lines
        handler.close()


def _run(front_of: Callable[[Job], AbstractContextManager[Front]], job: Job) -> Answer:
    """From one thread; at a rate the calls are taken."""
    logs, taken = logs_of(job.shape), list[float]()
    with front_of(job) as (log_one, delivered):

        def body() -> int:
            if job.rate:
                taken.extend(paced(job.count, job.rate, lambda number: log_one(logs[number % len(logs)])))
            else:
                for log in islice(cycle(logs), job.count):
                    log_one(log)
            return delivered()

        answer = timed(body)
    answer.send_seconds.extend(quantiles_of(taken))
    return answer


WAYS: dict[str, Callable[[Job], AbstractContextManager[Front]]] = {
    "logging": with_logging,
    "structlog": with_structlog,
    "loguru": with_loguru,
    "opentelemetry": with_opentelemetry,
    "FileHandler": with_file,
}


def ways() -> dict[str, Any]:
    """What :func:`.protocol.serve` takes."""
    return {name: functools.partial(_run, front_of) for name, front_of in WAYS.items()}


if __name__ == "__main__":
    serve(ways())
