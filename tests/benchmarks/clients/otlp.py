"""Send with ``opentelemetry-sdk`` and its OTLP/HTTP exporter: ``Logger.emit`` and a ``BatchLogRecordProcessor``.

All settings have their defaults: 512 records per request, a queue of 2,048, a second of linger, no compression. A
stream is a logger named after the topic, with the source as its attribute. Since the processor drops the oldest record
if its queue is full, the sender takes one of 2,048 permits for each record, and the exporter gives it back when it has
exported the record. The records of successful exports count as delivered.

With ``emit``, a log is the record's body, a map, which is not slower than attributes. With ``records``, each record is
a message with the log as attributes, as our exporters get them.
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
    """An exporter that counts the records of successful exports and gives their permits back."""

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
    """Emit the logs with one provider, processor and exporter, then flush; with a rate, time each call."""
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
    """Send each log as the attributes of a message."""
    return _emitted(job, lambda log: {"body": MESSAGE, "attributes": log})


if __name__ == "__main__":
    serve({"emit": emit, "records": records})
