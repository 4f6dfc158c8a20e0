"""Send to topics that never return, in rounds.

Prints the number of objects in Python's allocator after the first and the last round, and the peak memory of the
process in bytes.
"""

from __future__ import annotations

import gc
import sys

from common import LOGSTORE, PROJECT, peak

from producer import Producer, ProducerConfig, ProjectConfig
from producer.testing import RecordingSink


class Forgetful(RecordingSink):
    """A sink that accepts everything and keeps nothing, like a server that is always fast enough."""

    def write(self, delivery):
        receipt = super().write(delivery)
        self.deliveries.clear()
        return receipt


rounds, count = int(sys.argv[1]), int(sys.argv[2])
project = ProjectConfig(PROJECT, endpoint="http://127.0.0.1", access_key_id="id", access_key_secret="secret")
producer = Producer(project, sink=Forgetful(), config=ProducerConfig(linger_ms=100, total_size_in_bytes=16 * 2**20))
peaks, blocks = [], []
for number in range(rounds):
    for topic in range(count):
        producer.send(PROJECT, LOGSTORE, {"a": "b"}, topic=f"topic-{number}-{topic}")
    producer.flush(60)
    gc.collect()
    blocks.append(sys.getallocatedblocks())
    peaks.append(peak())
stats = producer.stats()
print(
    f"peak={peaks[-1] - peaks[0]} blocks={blocks[-1] - blocks[0]} delivered={stats.delivered} used={stats.memory_used} "
    f"streams={len(stats.streams)}"
)
