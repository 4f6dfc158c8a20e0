"""Send records to a server that does not answer, and exit within 1 s; callbacks count.

The second argument names the variant: ``plain``; ``six`` for six producers in the same state; ``logging`` for a log
file of the application. In ``interrupted`` the user interrupts the wait, in ``twice`` also the wait for callbacks, in
``at once`` the exit as it begins.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import signal
import sys
import threading
import time

from common import LOGSTORE, PROJECT, new_producer

count, mode = int(sys.argv[1]), sys.argv[2]
told = 0


def say(result: object) -> None:
    """Count the callback; the last one prints the number."""
    global told  # noqa: PLW0603
    told += 1
    if mode == "twice":
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait()  # the exit is waiting for this callback when the signal takes effect
    if told == count:
        print(f"told={told}", flush=True)


if mode == "logging":
    logging.basicConfig(filename=os.environ["LOG_FILE"], level=logging.CRITICAL)

timeout = 30_000 if mode in {"interrupted", "twice"} else 1000
producers = [new_producer(drain_timeout_ms=timeout) for _ in range(6 if mode == "six" else 1)]
for producer in producers:
    for number in range(count):
        producer.send(PROJECT, LOGSTORE, {"n": str(number)}, callback=say)
if mode in {"interrupted", "twice"}:
    # Handlers run last in, first out: this one reports that the drain, registered earlier, is next.
    atexit.register(print, "exiting", flush=True)
elif mode == "at once":
    # os.kill would raise the interrupt itself; after a kill by ctypes, the next Python function raises it: the drain.
    atexit.register(ctypes.CDLL(None).kill, os.getpid(), signal.SIGINT)
print(f"exits_at={int(time.monotonic() * 1000)}", flush=True)
