"""``aliyun-log-python-sdk``: ``put_logs``, and ``QueuedLogHandler`` under the standard library's ``logging``.

``put_logs``: 1,000 logs of one stream a call, each a ``LogItem`` filled by ``push_back`` (to hand it the contents at
once copies them deeply, which is slower), lz4 as its default. A call that returns has delivered; a thread has its own
client.

``queued_handler``: a handler a topic, as it knows but one (and drops the source of what it batches), with its default
queue (40,960 logs) and batch (1,024). Set so that it sends the log's fields and nothing else, which is also its
fastest: messages that are dictionaries, no fields of the record. ``close_wait`` is longer than its 5 s, after which it
drops what is left. It has no outcomes to look at: counted is what its ``send`` got through, once its ``stop`` has
emptied the queue.

``logging``: such a handler as an application has it: the fields of the record, and those in ``extra=``.
"""

import logging
from itertools import cycle, islice
from typing import Any

from aliyun.log import LogClient, LogItem, PutLogsRequest, QueuedLogHandler

from ..shapes import MESSAGE, Log, logs_of, streams_of
from .protocol import Answer, Job, in_threads, paced, quantiles_of, serve, timed

LOGS_A_CALL = 1000


def client_of(address: str) -> LogClient:
    """A client of the null server at ``host:port``."""
    client = LogClient(
        f"http://{address}", "a", "s", source="client"
    )  # with the default it looks its own address up at each call
    # It puts no project before the host of an address, but overlooks one with a port. A proxy would mislead it, too,
    # but its HTTP library sends to proxies with Nagle's algorithm, which costs 40 ms a request.
    client._isRowIp = True
    return client


def item_of(log: Log) -> LogItem:
    item = LogItem()
    for key, value in log.items():
        item.push_back(key, value)
    return item


def put_logs(job: Job) -> Answer:
    """Calls for one stream after the other."""
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
        """As the library, but for an address with a port."""
        self.client = client_of(self.end_point)

    def send(self, req: PutLogsRequest) -> None:
        super().send(req)
        self.delivered.append(len(req.get_log_items()))


def _logger(handler: logging.Handler) -> logging.Logger:
    logger = logging.Logger("bench")  # noqa: LOG001 - of this job alone
    logger.addHandler(handler)
    return logger


def queued_handler(job: Job) -> Answer:
    """``Logger.info(log)``; then all handlers are stopped at the same time, still timed, as nothing else flushes."""
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
    """``logger.info(message, extra=log)`` from one thread, perhaps at a rate; then the handler is stopped."""
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
