"""``aliyun-log-producer``, the official one with a core in Rust: ``LogstoreWriter.send``, a delivery callback each.

lz4 as ours, instead of its zstd, and as many callbacks under way as it allows: with its 65,536 it waits most of the
time for its own linger as soon as logs go to many streams (four to five times slower with 50); only the way ``kept``
leaves it at that. All else is its default: batches of 1 MiB or 4,096 logs, 2 s of linger, 128 MiB of buffer, two
workers. A refused send (``EnqueueFullError``) is tried again a millisecond later. Its ``flush`` returns before the last
callbacks have run, so these are waited for.
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
    """The settings of a job; its address becomes the proxy of this process."""
    settings: dict[str, Any] = {"compression": "lz4"}
    if job.way != "kept":
        settings["callback_capacity"] = 1024 * 1024
    for name, value in job.options.items():
        settings |= _OPTIONS[name](value)
    # It puts the project before the endpoint's host, always; a proxy spares the look-up of such a name.
    os.environ["http_proxy"] = f"http://{job.address}"
    return peer.ProducerConfig(endpoint="http://null.invalid", access_key_id="a", access_key_secret="s", **settings)


def finish(producer: peer.Producer, outcomes: list[object], count: int) -> int:
    """Wait for all outcomes; how many are good."""
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
    """One writer, shared by the job's threads; topic and source with each log."""
    outcomes: list[object] = []
    with peer.Producer(config_of(job)) as producer:
        writer = producer.writer("p", "bench")
        way = _at_rate if job.rate else _at_full_speed
        return way(job, writer, outcomes, lambda: finish(producer, outcomes, job.count))


if __name__ == "__main__":
    serve({"send": send, "kept": send})
