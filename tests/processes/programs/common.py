"""Share a producer for the server of the environment, and numbered records, among the programs."""

import os
import re
import resource
import threading
from pathlib import Path

from producer import EnvironmentCredentials, Producer, ProducerConfig, ProjectConfig, SendFuture

PROJECT = "my-project"
LOGSTORE = "app-log"


def new_producer(**options: object) -> Producer:
    """Return a producer that sends only full batches within the time of a test."""
    project = ProjectConfig(PROJECT, endpoint=os.environ["LOGHUB_ENDPOINT"], credentials=EnvironmentCredentials())
    return Producer(project, config=ProducerConfig(**{"linger_ms": 60_000, "io_thread_count": 2, **options}))


def send(producer: Producer, prefix: str, count: int = 1) -> list[SendFuture]:
    """Send ``count`` records named after ``prefix``."""
    return [producer.send(PROJECT, LOGSTORE, {"n": f"{prefix}-{number}"}) for number in range(count)]


def threads_of(producer: Producer) -> list[str]:
    """Return the names of the producer's running threads."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(producer.name + "-")]


def peak() -> int:
    """Return the largest resident size of this process, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # rusage would start at the size of the parent process
        return int(re.search(r"VmHWM:\s*(\d+) kB", status.read_text())[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
