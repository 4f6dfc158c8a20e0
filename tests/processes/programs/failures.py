"""Send rounds in which many records fail, are refused or split; print the allocated bytes after each round."""

from __future__ import annotations

import gc
import itertools
import sys
import tracemalloc

from common import LOGSTORE, PROJECT

from producer import (
    BodyTooLargeError,
    InvalidArgumentError,
    NetworkError,
    Producer,
    ProducerConfig,
    ProjectConfig,
    RejectedError,
)
from producer.testing import RecordingSink


class Failing(RecordingSink):
    """A sink that goes through all kinds of failure in turn, and keeps nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.ways = itertools.cycle([NetworkError, RejectedError, BodyTooLargeError, None])

    def write(self, delivery):
        way = next(self.ways)
        if way is not None:
            raise way("Code", "a failure of a test")
        receipt = super().write(delivery)
        self.deliveries.clear()
        return receipt


def one_round(producer: Producer, count: int) -> None:
    for number in range(count):
        callback = fail if number % 10 == 0 else None  # each prints a traceback, which dominates the run time
        producer.send(PROJECT, LOGSTORE, {"n": str(number)}, topic=str(number % 7), callback=callback)
        if number % 100 == 0:
            refuse(producer)
    producer.flush(60)


def fail(_result: object) -> None:
    raise LookupError("a callback that fails")


def refuse(producer: Producer) -> None:
    try:
        producer.send(PROJECT, LOGSTORE, {"n": object()})
    except InvalidArgumentError:
        return
    raise AssertionError("an object was accepted as a value")


rounds, count = int(sys.argv[1]), int(sys.argv[2])
config = ProducerConfig(
    linger_ms=100, batch_count_threshold=50, retries=2, base_retry_backoff_ms=1, max_retry_backoff_ms=2
)
project = ProjectConfig(PROJECT, endpoint="http://127.0.0.1", access_key_id="id", access_key_secret="secret")
producer = Producer(project, sink=Failing(), config=config)
one_round(producer, count)
tracemalloc.start()
held = []
for _ in range(rounds):
    one_round(producer, count)
    gc.collect()
    held.append(tracemalloc.get_traced_memory()[0])
stats = producer.stats()
print(
    f"first={held[0]} last={held[-1]} accepted={stats.accepted} settled={stats.delivered + stats.failed} "
    f"failed={stats.failed} used={stats.memory_used}"
)
