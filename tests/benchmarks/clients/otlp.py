"""``opentelemetry-sdk`` with its OTLP/HTTP exporter: ``Logger.emit`` through a ``BatchLogRecordProcessor``.

Defaults: 512 records a request, a queue of 2,048, a second of linger, no compression. A stream is a logger named by the
topic, with the source as its attribute. The processor drops the oldest record when its queue is full; so that nothing
is dropped, the sender takes one of 2,048 permits for each record, which come back when the exporter is done with it.
Delivered is what the exporter reports as a success.

``emit``: a log is the record's body, a map, which is no slower than attributes. ``records``: as our exporters get them,
a message and the log as attributes.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry._logs import Logger, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExportResult

from ..shapes import MESSAGE, Log, logs_of, streams_of
from .protocol import Answer, Job, in_threads, paced, quantiles_of, serve, timed

QUEUE = 2048


class _Counting(OTLPLogExporter):  # type: ignore[misc]
    """Counts the records of successful exports, and permits no more than may come."""

    def __init__(self, address: str) -> None:
        super().__init__(endpoint=f"http://{address}/v1/logs")
        self.delivered: list[int] = []
        self.room = threading.Semaphore(QUEUE)

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        result = super().export(batch)
        if result is LogRecordExportResult.SUCCESS:
            self.delivered.append(len(batch))
        self.room.release(len(batch))
        return result


def _loggers(provider: LoggerProvider, streams: int) -> list[Logger]:
    return [provider.get_logger(topic, attributes={"source": source}) for topic, source in streams_of(streams)]


def _emitted(job: Job, content_of: Callable[[Log], dict[str, Any]]) -> Answer:
    """A provider, a processor, an exporter; a flush at the end. At a rate the calls are taken."""
    exporter, provider = _Counting(job.address), LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    logs, loggers, room = logs_of(job.shape), _loggers(provider, job.streams), exporter.room
    taken = list[float]()

    def one(number: int) -> None:
        room.acquire()
        log, logger = logs[number % len(logs)], loggers[number % len(loggers)]
        logger.emit(timestamp=time.time_ns(), severity_number=SeverityNumber.INFO, **content_of(log))

    def work(_: int) -> None:
        own = job.count // job.threads
        if job.rate:
            taken.extend(paced(own, max(1, job.rate // job.threads), one))
        else:
            for number in range(own):
                one(number)

    def run() -> int:
        in_threads(job.threads, work)
        provider.force_flush()
        return sum(exporter.delivered)

    answer = timed(run)
    provider.shutdown()
    answer.send_seconds.extend(quantiles_of(taken))
    return answer


def emit(job: Job) -> Answer:
    return _emitted(job, lambda log: {"body": log})


def records(job: Job) -> Answer:
    """The log is the attributes of a message."""
    return _emitted(job, lambda log: {"body": MESSAGE, "attributes": log})


if __name__ == "__main__":
    serve({"emit": emit, "records": records})
