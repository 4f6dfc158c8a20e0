"""Send numbered records through a durable producer, and print each number once it is stored; to be killed.

Arguments: the channel's directory, the first number, and how many to send (0: until killed). With a count it waits
until every event in the channel is delivered. Environment variables: ``IDEMPOTENT`` asks for idempotent streams,
``DEAD_LETTERS`` names the directory of a dead letter channel, ``REFUSED_ALONE`` a file for the numbers of records that
were too large in a request of their own, ``CHANNEL`` the kind of channel (see :func:`_channel`).
"""

from __future__ import annotations

import itertools
import os
import sys
from collections import deque
from pathlib import Path

from producer import (
    BodyTooLargeError,
    Producer,
    ProducerConfig,
    ProjectConfig,
    SendFuture,
    Stream,
    StreamStoppedError,
)
from producer.channels import FileChannel, MemoryChannel, SpillableChannel
from producer.model.interfaces import Channel, Delivery, Receipt
from producer.runtime.clock import SystemClock
from producer.sinks.loghub.sink import LogHubSink
from tests.support.log_group_schema import contents_of

STREAMS = 3
#: The most records of a batch.
BATCH = 50
_undecidable = itertools.count(1)


class _Witness(LogHubSink):
    """Writes down records that are refused alone, before the refusal is processed: a kill cannot come in between."""

    def write(self, delivery: Delivery) -> Receipt:
        try:
            return super().write(delivery)
        except BodyTooLargeError:
            records = self.decode(delivery.payload)
            if len(records) == 1:
                number = contents_of(records[0])[0][0][1].decode()
                with Path(os.environ["REFUSED_ALONE"]).open("a") as file:
                    file.write(f"{number}\n")
            raise


def _sink(project: ProjectConfig, config: ProducerConfig) -> LogHubSink | None:
    if "REFUSED_ALONE" not in os.environ:
        return None
    sink = _Witness(config, SystemClock(), "witness")
    sink.put_project(project)
    return sink


def _sent(stream: Stream, log: dict[str, str]) -> SendFuture:
    while True:
        try:
            return stream.send(log)
        except StreamStoppedError:
            _resumed(stream)


def _resumed(stream: Stream) -> bool:
    """Resume a stopped stream; return True if it was stopped. Batches of unknown fate are counted: they may be stored
    twice.
    """
    stopped = stream.stopped
    if stopped is None:
        return False
    if stopped.first.error_code == "InvalidSequenceId":
        print(f"untold={next(_undecidable)}", flush=True)
    stream.resume()
    return True


def _channel(directory: str, kind: str) -> Channel:
    """Return a file channel whose ``fsync`` is ``kind``; after ``spillable-``, with a small memory channel
    before it.
    """
    spillable, policy = kind.startswith("spillable-"), kind.removeprefix("spillable-")
    fsync = policy if policy.isalpha() else float(policy)
    channel = FileChannel(directory, segment_size=32_768, checkpoint_interval=0.1, minimum_free_space=0, fsync=fsync)
    return SpillableChannel(MemoryChannel(capacity=20, transaction_capacity=20), channel) if spillable else channel


class _Told:
    """Prints the numbers of records that survive a kill of this process.

    In a file channel these are all accepted records, whenever they reach the disk. In a spillable channel they are the
    records whose future is ``stored``: the others are in memory.
    """

    def __init__(self, kind: str) -> None:
        self._commit, self._spillable = kind == "commit", kind.startswith("spillable-")
        self._waiting: deque[tuple[int, SendFuture]] = deque(maxlen=1000)

    def add(self, number: int, future: SendFuture) -> None:
        """Print the number, now or when its future is ``stored``."""
        if self._commit:
            assert future.stored
        if not self._spillable:
            print(number, flush=True)
            return
        self._waiting.append((number, future))
        for _ in range(len(self._waiting)):
            one, waiting = self._waiting.popleft()
            if waiting.stored:
                print(one, flush=True)
            elif not waiting.done():
                self._waiting.append((one, waiting))


def main() -> None:
    directory, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    project = ProjectConfig(
        "my-project",
        endpoint=os.environ["LOGHUB_ENDPOINT"],
        access_key_id=os.environ["LOGHUB_ACCESS_KEY_ID"],
        access_key_secret=os.environ["LOGHUB_ACCESS_KEY_SECRET"],
    )
    config = ProducerConfig(
        linger_ms=100,
        batch_count_threshold=BATCH,
        total_size_in_bytes=200_000,
        base_retry_backoff_ms=10,
        io_thread_count=2,
    )
    kind = os.environ.get("CHANNEL", "commit")
    channel, told = _channel(directory, kind), _Told(kind)
    letters = os.environ.get("DEAD_LETTERS")
    dead_letter = FileChannel(letters, minimum_free_space=0) if letters else None
    idempotent = "IDEMPOTENT" in os.environ
    sink = _sink(project, config)
    with Producer(project, config=config, channel=channel, dead_letter=dead_letter, sink=sink) as producer:
        streams = [
            producer.stream("my-project", "app-log", topic=str(topic), idempotent=idempotent)
            for topic in range(STREAMS)
        ]
        print(f"recovered={producer.stats().recovered}", flush=True)
        number = first
        while not count or number < first + count:
            numbers = range(number, number + (5 if number % 7 == 0 else 1))
            if number % 11 == 0 and not idempotent:  # one event of several records, which may be split
                futures = [streams[number % STREAMS].send([{"n": str(each)} for each in numbers])] * len(numbers)
            else:
                futures = [_sent(streams[each % STREAMS], {"n": str(each)}) for each in numbers]
            for each, future in zip(numbers, futures, strict=True):
                told.add(each, future)
            number += len(numbers)
        stopped = [True]
        while any(stopped):
            producer.flush(60)
            stopped = [_resumed(stream) for stream in streams]
        stats = producer.stats()
        print(f"delivered={stats.delivered} stored={stats.stored}", flush=True)


if __name__ == "__main__":
    main()
