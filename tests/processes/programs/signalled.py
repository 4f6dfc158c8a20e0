"""Send from several threads as fast as possible until a signal; a mapped file records what was accepted.

The first argument is that file. The second names the final action of the signal: ``default``, or ``own`` for a handler
installed earlier.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import sys
import threading
from contextlib import suppress
from pathlib import Path

from common import LOGSTORE, PROJECT, new_producer

import producer
from producer import ProducerClosedError

THREADS = 3

if __name__ == "__main__":
    path, mode = sys.argv[1:]
    with Path(path).open("r+b") as file:
        accepted = mmap.mmap(file.fileno(), 8 * THREADS)

    def leave(number: int, _frame: object) -> None:
        print(f"handled={number}", flush=True)
        os._exit(7)

    if mode == "own":
        signal.signal(signal.SIGINT, leave)
    sender = new_producer(linger_ms=1000, drain_timeout_ms=20_000)
    producer.install_signal_handlers()

    def work(thread: int) -> None:
        stream = sender.stream(PROJECT, LOGSTORE, topic=str(thread))
        number = 0
        while True:
            stream.send({"n": number})
            number += 1
            accepted[8 * thread : 8 * thread + 8] = struct.pack("<q", number)

    def work_until_refused(thread: int) -> None:
        with suppress(ProducerClosedError):
            work(thread)

    for thread in range(1, THREADS):
        threading.Thread(target=work_until_refused, args=(thread,), daemon=True).start()
    print("sending", flush=True)
    work(0)
