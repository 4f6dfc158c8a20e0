"""The threads of one producer, server or agent, and the CPU time that they use: others of the process do not count."""

import threading
import time
from collections.abc import Iterable


def named(prefix: str) -> list[threading.Thread]:
    """Those that are alive and have a name that begins so."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(prefix)]


def cpu_of(threads: Iterable[threading.Thread]) -> float:
    """The CPU seconds of threads that do not end meanwhile; of the process where a system does not tell."""
    clock_of = getattr(time, "pthread_getcpuclockid", None)
    if clock_of is None:
        return time.process_time()
    return sum(time.clock_gettime(clock_of(thread.ident)) for thread in threads if thread.ident is not None)
