"""Stop on SIGTERM, as containers and service managers ask for, without losing a record.

Python's own reaction to SIGTERM ends the process at once, without exit handlers: what was not sent is lost. With
``install_signal_handlers`` the producers are drained first; then the signal does what it did before: here it ends the
process. A program with a handler of its own installs that before.
"""

from __future__ import annotations

import itertools
import os
import time

from loghub import EnvironmentCredentials, Producer, ProjectConfig, install_signal_handlers


def main() -> None:
    """Send a record every now and then, until a signal ends the process."""
    install_signal_handlers()
    project = ProjectConfig("my-project", endpoint=os.environ["LOGHUB_ENDPOINT"], credentials=EnvironmentCredentials())
    with Producer(project) as producer:
        for number in itertools.count():
            producer.send("my-project", "app-log", {"n": number})
            print(f"sent {number}", flush=True)
            time.sleep(0.01)


if __name__ == "__main__":
    main()
