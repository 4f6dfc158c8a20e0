"""Stop on SIGTERM, as containers and service managers do, without losing a record.

Python's default for SIGTERM ends the process at once, without exit handlers: unsent records are lost. With
``install_signal_handlers`` the producers drain first. Then the previous handler runs; here it ends the process. A
program with its own handler installs that one first.
"""

from __future__ import annotations

import itertools
import os
import time

from loghub import EnvironmentCredentials, Producer, ProjectConfig, install_signal_handlers


def main() -> None:
    """Send a record periodically until a signal ends the process."""
    install_signal_handlers()
    project = ProjectConfig("my-project", endpoint=os.environ["LOGHUB_ENDPOINT"], credentials=EnvironmentCredentials())
    with Producer(project) as producer:
        for number in itertools.count():
            producer.send("my-project", "app-log", {"n": number})
            print(f"sent {number}", flush=True)
            time.sleep(0.01)


if __name__ == "__main__":
    main()
