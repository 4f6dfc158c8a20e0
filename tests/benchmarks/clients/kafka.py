"""Send with ``confluent-kafka`` into librdkafka's mock cluster: ``Producer.produce`` with a delivery callback each.

Messages are compressed by lz4, have no key and go to one partition of one topic; streams are ignored. All other
settings have their defaults: batches of up to a million bytes or 10,000 messages, 5 ms of linger (more is not faster
here), a queue of 100,000 messages, acknowledgement by all replicas. Callbacks run in ``poll(0)`` after every 100 sends,
which costs less than after each, and on ``BufferError``, which means a full queue; at a rate, they run in a thread that
waits in ``poll``.

``produce`` encodes each log as JSON with ``orjson``; ``produce_bytes`` sends bytes that were encoded before the timed
part.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import cycle, islice
from typing import Any

import orjson
from confluent_kafka import Producer

from ..shapes import logs_of
from .latency import Callback, at_rate
from .protocol import Answer, Job, in_threads, serve, timed

TOPIC, PARTITION = "bench", 0
SENDS_A_POLL = 100
_OPTIONS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "linger_ms": lambda value: {"linger.ms": value},
    "total_size_in_bytes": lambda value: {"queue.buffering.max.kbytes": value // 1024},
}


def _producer(job: Job) -> Producer:
    settings = {"bootstrap.servers": job.address, "compression.type": "lz4"}
    for name, value in job.options.items():
        settings |= _OPTIONS[name](value)
    producer = Producer(settings)
    producer.list_topics(TOPIC, timeout=10)  # connects and creates the topic before the clock starts
    return producer


def _finish(producer: Producer, outcomes: list[object]) -> int:
    producer.flush()
    return sum(outcome is None for outcome in outcomes)


def _produce(producer: Producer, value: bytes, done: Callback) -> None:
    while True:
        try:
            return producer.produce(TOPIC, value, partition=PARTITION, on_delivery=done)
        except BufferError:
            producer.poll(0.001)


def _at_full_speed(job: Job, producer: Producer, values: Callable[[], Iterator[bytes]]) -> Answer:
    outcomes: list[object] = []
    keep = outcomes.append

    def done(error: object, _: object) -> None:
        keep(error)

    def work(_: int) -> None:
        for number, value in enumerate(islice(values(), job.count // job.threads)):
            try:
                producer.produce(TOPIC, value, partition=PARTITION, on_delivery=done)
            except BufferError:
                _produce(producer, value, done)
            if not number % SENDS_A_POLL:
                producer.poll(0)

    def run() -> int:
        in_threads(job.threads, work)
        return _finish(producer, outcomes)

    return timed(run)


def _at_rate(job: Job, producer: Producer) -> Answer:
    logs, outcomes = logs_of(job.shape), []
    ended = threading.Event()

    def serve_callbacks() -> None:
        while not ended.is_set():
            producer.poll(0.1)

    server = threading.Thread(target=serve_callbacks)
    server.start()
    try:
        return at_rate(
            job,
            lambda number, done: _produce(producer, orjson.dumps(logs[number % len(logs)]), done),
            outcomes,
            lambda: _finish(producer, outcomes),
        )
    finally:
        ended.set()
        server.join()


def produce(job: Job) -> Answer:
    producer, logs = _producer(job), logs_of(job.shape)
    with closing(producer):
        if job.rate:
            return _at_rate(job, producer)
        return _at_full_speed(job, producer, lambda: map(orjson.dumps, cycle(logs)))


def produce_bytes(job: Job) -> Answer:
    values = [orjson.dumps(log) for log in logs_of(job.shape)]
    with closing(_producer(job)) as producer:
        return _at_full_speed(job, producer, lambda: cycle(values))


if __name__ == "__main__":
    serve({"produce": produce, "produce_bytes": produce_bytes})
