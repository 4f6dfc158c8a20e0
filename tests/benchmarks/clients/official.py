"""Send with the official ``aliyun-log-producer``, whose core is in Rust: ``LogstoreWriter.send`` with callbacks.

Compression is lz4, as in ours, instead of its zstd, and the number of pending callbacks is the maximum that it allows:
with its default of 65,536 it mostly waits for its own linger if logs go to many streams (four to five times slower with
50). Only the way ``kept`` leaves that default. All other settings have their defaults: batches of 1 MiB or 4,096 logs,
2 s of linger, 128 MiB of buffer, two workers. A refused send (``EnqueueFullError``) is repeated a millisecond later. As
its ``flush`` returns before the last callbacks have run, the client waits for them.
"""

import os
import time
from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

import aliyun_log_producer as peer

from ..shapes import logs_of, streams_of
from .latency import Callback, at_rate
from .protocol import Answer, Job, in_threads, serve, timed

_OPTIONS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "linger_ms": lambda value: {"linger": value / 1000},
    "total_size_in_bytes": lambda value: {"buffer_bytes": value},
}


def config_of(job: Job) -> peer.ProducerConfig:
    """Return the settings of a job, and make its address the proxy of this process."""
    settings: dict[str, Any] = {"compression": "lz4"}
    if job.way != "kept":
        settings["callback_capacity"] = 1024 * 1024
    for name, value in job.options.items():
        settings |= _OPTIONS[name](value)
    # It always puts the project before the endpoint's host; with a proxy that name is not looked up.
    os.environ["http_proxy"] = f"http://{job.address}"
    return peer.ProducerConfig(endpoint="http://null.invalid", access_key_id="a", access_key_secret="s", **settings)


def finish(producer: peer.Producer, outcomes: list[object], count: int) -> int:
    """Wait for all outcomes, and return the number of successful ones."""
    producer.flush()
    while len(outcomes) < count:
        time.sleep(0.001)
    return sum(outcome is None for outcome in outcomes)


def _at_full_speed(job: Job, writer: peer.LogstoreWriter, outcomes: list[object], finish: Callable[[], int]) -> Answer:
    logs, streams, done = logs_of(job.shape), streams_of(job.streams), outcomes.append

    def work(_: int) -> None:
        for log, (topic, source) in zip(islice(cycle(logs), job.count // job.threads), cycle(streams), strict=False):
            while True:
                try:
                    writer.send(log, topic=topic, source=source, on_delivery=done)
                    break
                except peer.EnqueueFullError:
                    time.sleep(0.001)

    def run() -> int:
        in_threads(job.threads, work)
        return finish()

    return timed(run)


def _at_rate(job: Job, writer: peer.LogstoreWriter, outcomes: list[object], finish: Callable[[], int]) -> Answer:
    logs, streams = logs_of(job.shape), streams_of(job.streams)

    def send(number: int, done: Callback) -> None:
        topic, source = streams[number % len(streams)]
        while True:
            try:
                return writer.send(logs[number % len(logs)], topic=topic, source=source, on_delivery=done)
            except peer.EnqueueFullError:
                time.sleep(0.001)

    return at_rate(job, send, outcomes, finish)


def send(job: Job) -> Answer:
    """Send with one writer for all threads of the job; each log has its topic and source."""
    outcomes: list[object] = []
    with peer.Producer(config_of(job)) as producer:
        writer = producer.writer("p", "bench")
        way = _at_rate if job.rate else _at_full_speed
        return way(job, writer, outcomes, lambda: finish(producer, outcomes, job.count))


if __name__ == "__main__":
    serve({"send": send, "kept": send})
