"""Print the CPU of a producer, per mille of a core: idle, or with 1,000 waiting batches."""

from __future__ import annotations

import sys
import time

from common import LOGSTORE, PROJECT, new_producer

mode, seconds = sys.argv[1], float(sys.argv[2])
producer = new_producer(linger_ms=2000, drain_timeout_ms=0)
batches = 1000 if mode == "dead" else 1
for number in range(batches):
    producer.send(PROJECT, LOGSTORE, {"n": str(number)}, topic=f"topic-{number}")
give_up = time.monotonic() + 30


def waiting() -> int:
    """Return the number of batches that wait for a retry, or after one that does."""
    counts = producer.stats().batches
    return counts["waiting"] + counts["queued"]


while waiting() + producer.stats().delivered < batches and time.monotonic() < give_up:
    time.sleep(0.05)
time.sleep(2)  # the first refusals are close together
before = time.process_time()
time.sleep(seconds)
used, stats = time.process_time() - before, producer.stats()
print(f"per_mille={round(used / seconds * 1000)} waiting={waiting()} attempts={stats.attempts}")
