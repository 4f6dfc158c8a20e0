"""Log with the logging libraries of applications into a file, without LogHub.

A scrape of Prometheus with the client's default collectors is here, too. The program is
``python -m tests.benchmarks.clients.libraries``. Records are those of :mod:`.integrations`. The timed part ends when
everything is in the file.
"""

import functools
import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..shapes import MESSAGE, logs_of
from .integrations import Front, logger_of, scraping, serve_fronts
from .protocol import Job

_FORMAT = (
    "%(asctime)s %(levelname)s %(name)s %(pathname)s %(funcName)s %(lineno)d %(threadName)s %(process)d %(message)s "
)


@contextmanager
def _file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory, "app.log")


def _lines(path: Path, flush: Callable[[], object]) -> int:
    flush()
    with path.open("rb") as file:
        return sum(1 for _ in file)


@contextmanager
def with_logging(job: Job) -> Iterator[Front]:
    """Log with a ``FileHandler`` that writes a line of text with as many fields as ``LogHubHandler`` sends."""
    names = logs_of(job.shape)[0]
    with _file() as path:
        handler = logging.FileHandler(path)
        handler.setFormatter(logging.Formatter(_FORMAT + " ".join(f"%({name})s" for name in names)))
        yield logger_of(handler), functools.partial(_lines, path, handler.flush)
        handler.close()


@contextmanager
def with_structlog(_job: Job) -> Iterator[Front]:
    """Log a line of JSON with level and time through ``WriteLoggerFactory``, structlog's fastest way into a file."""
    import structlog

    with _file() as path, path.open("w", encoding="utf-8") as file:
        processors = [
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer(),
        ]
        logger = structlog.wrap_logger(structlog.WriteLoggerFactory(file)(), processors=processors)
        yield lambda log: logger.info(MESSAGE, **log), functools.partial(_lines, path, file.flush)


@contextmanager
def with_loguru(_job: Job) -> Iterator[Front]:
    """Log a line of text with the bound fields into loguru's own file sink, on its own thread (``enqueue=True``)."""
    from loguru import logger

    with _file() as path:
        logger.remove()
        form = "{time} | {level} | {name}:{function}:{line} | {thread.name} {process} | {message} {extra}"
        number = logger.add(path, enqueue=True, format=form)
        yield lambda log: logger.bind(**log).info(MESSAGE), functools.partial(_lines, path, logger.complete)
        logger.remove(number)


@contextmanager
def with_prometheus(_job: Job) -> Iterator[Front]:
    """Scrape the default collectors of ``prometheus_client``."""
    from prometheus_client import REGISTRY

    yield scraping(REGISTRY, b"process_cpu_seconds_total")


if __name__ == "__main__":
    serve_fronts(
        {
            "FileHandler": with_logging,
            "structlog": with_structlog,
            "loguru": with_loguru,
            "prometheus": with_prometheus,
        }
    )
