"""Sends records to a server that does not answer and ends, with callbacks that count; the exit may take 1 s.

The second argument names what is special: ``plain``; ``six``, as many producers in the same state; ``logging``, an
application that sends its log to a file; ``interrupted``, the user who does not want to wait.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time

from common import LOGSTORE, PROJECT, new_producer

count, mode = int(sys.argv[1]), sys.argv[2]
told = 0


def say(result: object) -> None:
    """A callback; the last one says how many there were."""
    global told  # noqa: PLW0603
    told += 1
    if told == count:
        print(f"told={told}", flush=True)


if mode == "logging":
    logging.basicConfig(filename=os.environ["LOG_FILE"], level=logging.CRITICAL)

timeout = 30_000 if mode == "interrupted" else 1000
producers = [new_producer(drain_timeout_ms=timeout) for _ in range(6 if mode == "six" else 1)]
for producer in producers:
    for number in range(count):
        producer.send(PROJECT, LOGSTORE, {"n": str(number)}, callback=say)
if mode == "interrupted":
    # Handlers run last in, first out: this one says that the drain, which was registered before, is next.
    atexit.register(print, "exiting", flush=True)
print(f"exits_at={int(time.monotonic() * 1000)}", flush=True)
