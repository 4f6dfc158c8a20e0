"""A timer interrupts every send of the main thread, often several times; what was accepted is counted at the end.

On a busy machine it goes on until there were enough of them, for 20 seconds at most.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType

seconds, memory, twin, interval = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
os.environ["PRODUCER_PURE"] = "1" if twin == "pure" else ""

from common import LOGSTORE, PROJECT, new_producer

from producer import Stream


class Interrupt(Exception):  # noqa: N818
    pass


# Where `send` itself is compiled, it begins in Python with what is not done there.
SENDS = {Stream.send.__code__, Stream._send_otherwise.__code__}


def interrupt(_number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code in SENDS:
            raise Interrupt
        frame = frame.f_back


producer = new_producer(linger_ms=100, batch_count_threshold=200, total_size_in_bytes=memory)
streams = [producer.stream(PROJECT, LOGSTORE, topic=str(number)) for number in range(2)]
streams[0].send({"n": "first"}).result(timeout=60)  # threads run from now on
returned, interrupts = 1, 0
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, interval, interval)
end = time.monotonic() + seconds
while time.monotonic() < end or (interrupts <= 300 and time.monotonic() < end + 20):
    try:
        log = {"n": str(returned)}
        streams[returned % 2].send(log if returned % 3 else [log])
        returned += 1
    except Interrupt:
        interrupts += 1
signal.setitimer(signal.ITIMER_REAL, 0)
producer.close(20)
stats = producer.stats()
print(
    f"interrupts={interrupts} returned={returned} accepted={stats.accepted} delivered={stats.delivered} "
    f"pending={stats.pending} leaked={stats.memory_used} native={int(stats.twin == 'native')}"
)
