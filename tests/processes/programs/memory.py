"""Fill a producer whose server does not answer; print the growth of the process, peak minus start.

Callbacks are given, and futures are kept only until they are done, as careful applications do.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from common import LOGSTORE, PROJECT, new_producer, peak

from producer import ProducerConfig, SendFuture, SendTimeoutError

Make = Callable[[int], tuple[dict[str, Any], str]]

KINDS: dict[str, Make] = {
    "small": lambda n: ({"level": "INFO", "message": "x" * 100 + str(n), "user": str(n)}, ""),
    "large": lambda n: ({"message": str(n) + "x" * 2000}, ""),
    "tiny": lambda _: ({"a": "b"}, ""),
    "topics": lambda n: ({"a": "b"}, f"topic-{n}"),
}


def ignore(result: object) -> None:
    """A callback."""


def fill(make: Make, total: int) -> None:
    # Without retries a refused batch would complete at once and free memory; here it waits for its next attempt.
    producer = new_producer(
        total_size_in_bytes=total,
        max_block_ms=300,
        linger_ms=500,
        drain_timeout_ms=0,
        retries=2**40,
        max_retry_backoff_ms=200,
    )
    kept: set[SendFuture] = set()

    def work(number: int) -> None:
        count = number
        try:
            while True:
                log, topic = make(count)
                future = producer.send(PROJECT, LOGSTORE, log, topic=topic, callback=ignore)
                kept.add(future)
                future.add_done_callback(kept.discard)
                count += 4
        except SendTimeoutError:
            pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = producer.stats()
    print(f"accepted={stats.accepted} used={stats.memory_used} attempts={stats.attempts}")


start = peak()
size = int(sys.argv[2]) or ProducerConfig().total_size_in_bytes
fill(KINDS[sys.argv[1]], size)
print(f"total={size} start={start} growth={peak() - start}")
