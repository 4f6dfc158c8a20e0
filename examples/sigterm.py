"""Stop on SIGTERM, as containers and service managers ask for, without losing a record.

Python's own reaction to SIGTERM ends the process at once, without exit handlers: what was not sent is lost. A handler
that raises ``SystemExit`` turns the signal into an ordinary exit: ``with`` closes the producer, and that
delivers the rest.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time

from producer import EnvironmentCredentials, Producer, ProjectConfig


def stop(_number: int, _frame: object) -> None:
    """Leave the main thread, wherever it is; a second SIGTERM shall not interrupt the way out."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def main() -> None:
    """Send a record every now and then, until told to stop."""
    signal.signal(signal.SIGTERM, stop)
    project = ProjectConfig("my-project", endpoint=os.environ["LOGHUB_ENDPOINT"], credentials=EnvironmentCredentials())
    with Producer(project) as producer:
        for number in itertools.count():
            producer.send("my-project", "app-log", {"n": number})
            print(f"sent {number}", flush=True)
            time.sleep(0.01)


if __name__ == "__main__":
    main()
