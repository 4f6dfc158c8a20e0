"""Send from the workers of a pool that is then terminated, as at the end of its ``with`` block."""

from __future__ import annotations

import multiprocessing
import threading
from typing import Any

from common import LOGSTORE, PROJECT, new_producer

import producer

mine: list[Any] = []


def work(number: int) -> int:
    """Send a record that lingers longer than the pool lives."""
    if not mine:
        mine.append(new_producer())
    mine[0].send(PROJECT, LOGSTORE, {"n": f"record-{number}"})
    return number


if __name__ == "__main__":
    with multiprocessing.Pool(2, initializer=producer.install_signal_handlers) as pool:
        print(f"sent={len(pool.map(work, range(20)))}")
        workers = multiprocessing.active_children()
        # Python notices a signal late that comes just before a blocking call; a worker that drains ignores the second.
        again = threading.Timer(0.3, lambda: [worker.terminate() for worker in workers])
        again.daemon = True
        again.start()
