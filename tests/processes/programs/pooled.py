"""A pool whose workers send and are then terminated, as the end of its ``with`` block does."""

from __future__ import annotations

import multiprocessing
import threading
from typing import Any

from common import LOGSTORE, PROJECT, new_producer

import producer

mine: list[Any] = []


def work(number: int) -> int:
    """Send a record, which lingers longer than the pool lives."""
    if not mine:
        mine.append(new_producer())
    mine[0].send(PROJECT, LOGSTORE, {"n": f"record-{number}"})
    return number


def terminate_again() -> None:
    """A signal that comes just before a worker begins to wait for its next task does not end that wait: Python runs
    handlers between its own instructions. Seen 2 times in 360, on a busy machine; the next signal ends it.
    """
    for child in multiprocessing.active_children():
        child.terminate()


if __name__ == "__main__":
    timer = threading.Timer(10, terminate_again)
    timer.daemon = True
    with multiprocessing.Pool(2, initializer=producer.install_signal_handlers) as pool:
        print(f"sent={len(pool.map(work, range(20)))}")
        timer.start()
