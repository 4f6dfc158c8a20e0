"""Sends numbered records through a durable producer, and prints each number once it is stored; to be killed.

Arguments: the channel's directory, the first number, and how many to send (0: until killed). With a count it waits
until everything that the channel holds is delivered.
"""

from __future__ import annotations

import os
import sys

from producer import Producer, ProducerConfig, ProjectConfig
from producer.channels import FileChannel

STREAMS = 3


def main() -> None:
    """Send."""
    directory, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    project = ProjectConfig(
        "my-project",
        endpoint=os.environ["LOGHUB_ENDPOINT"],
        access_key_id=os.environ["LOGHUB_ACCESS_KEY_ID"],
        access_key_secret=os.environ["LOGHUB_ACCESS_KEY_SECRET"],
    )
    config = ProducerConfig(
        linger_ms=100,
        batch_count_threshold=50,
        total_size_in_bytes=200_000,
        base_retry_backoff_ms=10,
        io_thread_count=2,
    )
    channel = FileChannel(directory, segment_size=32_768, checkpoint_interval=0.1, minimum_free_space=0)
    with Producer(project, config=config, channel=channel) as producer:
        print(f"recovered={producer.stats().recovered}", flush=True)
        number = first
        while not count or number < first + count:
            numbers = range(number, number + (5 if number % 7 == 0 else 1))
            futures = [
                producer.stream("my-project", "app-log", topic=str(each % STREAMS)).send({"n": str(each)})
                for each in numbers
            ]
            for each, future in zip(numbers, futures, strict=True):
                assert future.stored
                print(each, flush=True)
            number += len(numbers)
        producer.flush(60)
        stats = producer.stats()
        print(f"delivered={stats.delivered} stored={stats.stored}", flush=True)


if __name__ == "__main__":
    main()
