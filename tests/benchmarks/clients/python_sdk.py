"""Send with ``aliyun-log-python-sdk``: ``put_logs``, and ``QueuedLogHandler`` of the standard library's ``logging``.

``put_logs`` takes 1,000 logs of one stream per call, each a ``LogItem`` filled by ``push_back`` (its constructor copies
the contents deeply, which is slower), with its default compression lz4. A call that returns has delivered its logs;
each thread has its own client.

``queued_handler`` has one handler per topic, as a handler has only one (and drops the source of its batches), with the
default queue (40,960 logs) and batch (1,024). It sends only the log's fields, which is also fastest: messages are
dictionaries, and fields of the record are left out. ``close_wait`` is longer than its default of 5 s, after which the
handler drops the remaining logs. As the handler reports no outcomes, the logs of its successful ``send`` calls are
counted after ``stop`` has emptied the queue.

``logging`` uses such a handler like an application: with the fields of the record and those in ``extra=``.
"""

import logging
from itertools import cycle, islice
from typing import Any

from aliyun.log import LogClient, LogItem, PutLogsRequest, QueuedLogHandler

from ..shapes import MESSAGE, Log, logs_of, streams_of
from .protocol import Answer, Job, in_threads, paced, quantiles_of, serve, timed

LOGS_A_CALL = 1000


def client_of(address: str) -> LogClient:
    """Return a client of the null server at ``host:port``."""
    client = LogClient(
        f"http://{address}", "a", "s", source="client"
    )  # by default it looks up its own address in each call
    # It puts the project before the host of an endpoint, except before an IP address without a port. With a proxy it
    # would reach the server, too, but its HTTP library sends to proxies with Nagle's algorithm, which costs 40 ms per
    # request.
    client._isRowIp = True
    return client


def item_of(log: Log) -> LogItem:
    item = LogItem()
    for key, value in log.items():
        item.push_back(key, value)
    return item


def put_logs(job: Job) -> Answer:
    """Call ``put_logs`` for the streams in turn."""
    logs, streams = logs_of(job.shape), streams_of(job.streams)
    clients = [client_of(job.address) for _ in range(job.threads)]
    delivered: list[int] = []
    most = int(job.options.get("logs_a_call", LOGS_A_CALL))

    def work(thread: int) -> None:
        client, rest, turn = clients[thread], job.count // job.threads, cycle(logs)
        for topic, source in cycle(streams):
            items = [item_of(log) for log in islice(turn, min(most, rest))]
            client.put_logs(PutLogsRequest("p", "bench", topic, source, items))
            delivered.append(len(items))
            rest -= len(items)
            if not rest:
                return

    def run() -> int:
        in_threads(job.threads, work)
        return sum(delivered)

    return timed(run)


class _Handler(QueuedLogHandler):  # type: ignore[misc]
    def __init__(self, address: str, topic: str, **content: Any) -> None:
        super().__init__(address, "a", "s", "p", "bench", topic=topic, close_wait=60, **content)
        self.delivered: list[int] = []

    def create_client(self) -> None:
        """Create a client as the library does, but for an address with a port."""
        self.client = client_of(self.end_point)

    def send(self, req: PutLogsRequest) -> None:
        super().send(req)
        self.delivered.append(len(req.get_log_items()))


def _logger(handler: logging.Handler) -> logging.Logger:
    logger = logging.Logger("bench")  # noqa: LOG001 - only for this job
    logger.addHandler(handler)
    return logger


def queued_handler(job: Job) -> Answer:
    """Call ``Logger.info(log)``, then stop all handlers at the same time, which is timed as it is the only flush."""
    logs = logs_of(job.shape)
    streams = streams_of(job.streams)
    alone = {"fields": (), "extra": False, "extract_json": True, "extract_json_drop_message": True}
    handlers = {topic: _Handler(job.address, topic, **alone) for topic, _ in streams}
    by_topic = {topic: _logger(handler) for topic, handler in handlers.items()}
    loggers, running = [by_topic[topic] for topic, _ in streams], list(handlers.values())

    def work(_: int) -> None:
        for log, logger in zip(islice(cycle(logs), job.count // job.threads), cycle(loggers), strict=False):
            logger.info(log)

    def run() -> int:
        in_threads(job.threads, work)
        in_threads(len(running), lambda number: running[number].stop())
        return sum(sum(handler.delivered) for handler in running)

    return timed(run)


def with_logging(job: Job) -> Answer:
    """Call ``logger.info(message, extra=log)`` from one thread, perhaps at a rate, then stop the handler."""
    topic, _ = streams_of(job.streams)[0]
    logs, handler, taken = logs_of(job.shape), _Handler(job.address, topic, extra=True), list[float]()
    logger = _logger(handler)

    def run() -> int:
        if job.rate:
            one = len(logs)
            taken.extend(paced(job.count, job.rate, lambda n: logger.info(MESSAGE, extra=logs[n % one])))
        else:
            for log in islice(cycle(logs), job.count):
                logger.info(MESSAGE, extra=log)
        handler.stop()
        return sum(handler.delivered)

    answer = timed(run)
    answer.send_seconds.extend(quantiles_of(taken))
    return answer


if __name__ == "__main__":
    serve({"put_logs": put_logs, "queued_handler": queued_handler, "logging": with_logging})
