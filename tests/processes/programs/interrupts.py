"""A timer interrupts the main thread all the time while it sends; what was accepted is counted at the end."""

from __future__ import annotations

import random
import signal
import sys
import time

from common import LOGSTORE, PROJECT, new_producer


class Interrupt(Exception):  # noqa: N818
    pass


def interrupt(*_: object) -> None:
    if armed:
        raise Interrupt


def arm() -> None:
    signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00002, 0.0005))


armed = True
signal.signal(signal.SIGALRM, interrupt)
producer = new_producer(linger_ms=100, batch_count_threshold=200, total_size_in_bytes=int(sys.argv[2]))
producer.send(PROJECT, LOGSTORE, {"n": "first"}).result(timeout=10)  # threads run from now on
returned, interrupts = 1, 0
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    try:
        arm()
        while True:
            producer.send(PROJECT, LOGSTORE, {"n": str(returned)}, topic=str(returned % 2))
            returned += 1
    except Interrupt:
        interrupts += 1
armed = False
producer.close(20)
stats = producer.stats()
print(
    f"interrupts={interrupts} returned={returned} accepted={stats.accepted} delivered={stats.delivered} "
    f"pending={stats.pending} leaked={stats.memory_used}"
)
