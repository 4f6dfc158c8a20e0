"""Send from the logging libraries of applications through this project's producer.

The libraries are ``logging``, structlog, loguru and OpenTelemetry; a scrape of Prometheus is here, too.
:mod:`.libraries` has the same without LogHub. ``python -m tests.benchmarks.clients.integrations`` is a client program.

A record is a message and the log's fields, as each library takes them: ``extra=``, keyword arguments, ``bind``,
attributes. All options have their defaults, except that a full buffer blocks the caller. The timed part ends when
everything is delivered.
"""

import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import cycle, islice
from typing import Any

from producer import Producer, ProjectConfig

from ..shapes import MESSAGE, Log, logs_of, streams_of
from .protocol import Answer, Job, paced, quantiles_of, serve, timed

#: A function that logs one record or scrapes once, and one that waits for all records and returns the number delivered.
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


def logger_of(handler: logging.Handler) -> Callable[[Log], object]:
    """Return a function that logs one record to this handler alone."""
    logger = logging.Logger("app.views", logging.INFO)  # noqa: LOG001 - only for this job
    logger.addHandler(handler)
    return lambda log: logger.info(MESSAGE, extra=log)


@contextmanager
def with_logging(job: Job) -> Iterator[Front]:
    from producer.integrations.logging import LogHubHandler

    with _producer(job) as producer:
        handler = LogHubHandler(producer, "p", "bench", on_full="wait", **_stream(job))
        yield logger_of(handler), functools.partial(_delivered, producer)
        handler.close()


@contextmanager
def with_structlog(job: Job) -> Iterator[Front]:
    """Yield a structlog logger with the processors ``add_log_level`` and ``LogHubProcessor``."""
    import structlog

    from producer.integrations.structlog import LogHubProcessor

    with _producer(job) as producer:
        last = LogHubProcessor(producer, "p", "bench", on_full="wait", **_stream(job))
        logger = structlog.wrap_logger(None, processors=[structlog.processors.add_log_level, last])
        yield lambda log: logger.info(MESSAGE, **log), functools.partial(_delivered, producer)


@contextmanager
def with_loguru(job: Job) -> Iterator[Front]:
    from loguru import logger

    from producer.integrations.loguru import LogHubSink

    with _producer(job) as producer:
        logger.remove()
        number = logger.add(LogHubSink(producer, "p", "bench", on_full="wait", **_stream(job)), format="{message}")
        yield lambda log: logger.bind(**log).info(MESSAGE), functools.partial(_delivered, producer)
        logger.remove(number)


@contextmanager
def with_opentelemetry(job: Job) -> Iterator[Front]:
    """Yield ``LogHubLogExporter`` with the simple processor, as the batching one drops records if its queue is full."""
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


@contextmanager
def with_prometheus(job: Job) -> Iterator[Front]:
    """Yield a scrape of ``LogHubCollector`` for a producer that has sent the logs of the shape."""
    from prometheus_client import CollectorRegistry

    from producer.integrations.prometheus import LogHubCollector

    with _producer(job) as producer:
        producer.stream("p", "bench", **_stream(job)).send_many(logs_of(job.shape))
        producer.flush()
        registry = CollectorRegistry()
        registry.register(LogHubCollector(producer))
        yield scraping(registry, b"loghub_producer_logs_delivered_total")


def scraping(registry: Any, name: bytes) -> Front:
    """Return the scrape, which counts if the page contains the metric, and the count."""
    from prometheus_client import generate_latest

    good: list[bool] = []
    return lambda _log: good.append(name in generate_latest(registry)), lambda: sum(good)


def _run(front_of: Callable[[Job], AbstractContextManager[Front]], job: Job) -> Answer:
    """Log from one thread; with a rate, time each call."""
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


def serve_fronts(fronts: Mapping[str, Callable[[Job], AbstractContextManager[Front]]]) -> None:
    """Answer jobs with these integrations, each of which is a way."""
    serve({name: functools.partial(_run, front_of) for name, front_of in fronts.items()})


if __name__ == "__main__":
    serve_fronts(
        {
            "logging": with_logging,
            "structlog": with_structlog,
            "loguru": with_loguru,
            "opentelemetry": with_opentelemetry,
            "prometheus": with_prometheus,
        }
    )
