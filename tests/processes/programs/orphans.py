"""Drop fifty producers, one after the other, without close, each with pending records."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path

from common import new_producer, send


def descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def wait_for_threads() -> int:
    """Wait for the other threads to end; return the number of those that remain."""
    end = time.monotonic() + 20
    while threading.active_count() > 1 and time.monotonic() < end:
        time.sleep(0.01)
    return threading.active_count() - 1


def drop_one(number: int) -> None:
    send(new_producer(linger_ms=100), f"orphan{number}", 10)


drop_one(0)
print(f"threads_of_one={wait_for_threads()}", flush=True)
before = descriptors()
for number in range(1, 50):
    drop_one(number)
left = wait_for_threads()
gc.collect()
print(f"threads={left} descriptors={descriptors() - before}")
