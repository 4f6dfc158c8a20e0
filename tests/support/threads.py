"""Measure the threads of one producer, server or agent, and their CPU time; other threads do not count."""

import threading
import time
from collections.abc import Iterable


def named(prefix: str) -> list[threading.Thread]:
    """Return the live threads whose names begin with ``prefix``."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(prefix)]


def cpu_of(threads: Iterable[threading.Thread]) -> float:
    """Return the CPU seconds of threads that stay alive; of the process where the system does not tell."""
    clock_of = getattr(time, "pthread_getcpuclockid", None)
    if clock_of is None:
        return time.process_time()
    return sum(time.clock_gettime(clock_of(thread.ident)) for thread in threads if thread.ident is not None)
