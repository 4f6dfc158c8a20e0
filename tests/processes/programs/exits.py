"""Send records and exit, without flush or close, in the way that the first argument names."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time

mode, count = sys.argv[1], int(sys.argv[2])
late: list = []
if mode in {
    "atexit_before",
    "atexit_when_drained",
}:  # runs after the producer's own exit handler, since that is registered later
    atexit.register(lambda: [function() for function in late])

from common import new_producer, send

producer = new_producer(drain_timeout_ms=10_000)


def from_daemon_thread() -> None:
    sent, stop = threading.Event(), threading.Event()

    def work() -> None:
        send(producer, "record", count)
        sent.set()
        stop.wait()

    threading.Thread(target=work, daemon=True).start()
    sent.wait()


def from_plain_thread() -> None:
    """Send from a thread that the interpreter joins after the last line of the program."""

    def work() -> None:
        ended.wait()
        send(producer, "record", count)

    ended = threading.Event()
    threading.Thread(target=work).start()
    ended.set()


def until_delivered() -> None:
    threading.main_thread().join()
    lingers = new_producer(linger_ms=100)
    (first,) = send(lingers, "record")
    end = time.monotonic() + 10
    while not first.done() and time.monotonic() < end:
        send(lingers, "more")
    print(f"delivered={int(first.done())}")


match mode:
    case "return":
        send(producer, "record", count)
    case "sys_exit":
        send(producer, "record", count)
        sys.exit(3)
    case "exception":
        send(producer, "record", count)
        raise LookupError("the program fails")
    case "interrupt":
        send(producer, "record", count)
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    case "daemon_thread":
        from_daemon_thread()
    case "plain_thread":
        from_plain_thread()
    case "dropped":
        send(new_producer(linger_ms=100), "record", count)
    case "thread_waits":
        threading.Thread(target=until_delivered).start()
    case "atexit_after":
        atexit.register(send, producer, "record", count)
    case "atexit_before":
        late.append(lambda: send(producer, "record", count))
    case "atexit_flush":
        atexit.register(lambda: (send(producer, "record", count), producer.flush(5)))
    case "atexit_when_drained":  # the producer is already closed here
        send(producer, "record", count)
        late.append(lambda: send(producer, "late"))
    case "os_exit":
        send(producer, "record", count)
        os._exit(0)
    case "sigterm":
        send(producer, "record", count)
        print("sent")
        signal.pause()
