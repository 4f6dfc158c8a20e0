"""Send records that survive the process: ``python examples/durable.py DIRECTORY``.

``send`` returns when the record is on the disk. Kill this program at any moment and start it again: it then delivers
the records that it had stored and not delivered. With ``CRASH=1`` in the environment it kills itself right after its
``send``: run it once with it, and once without.

``ProcessFileChannel`` gives each process a directory of its own below the named one. It also recovers the directories
of dead processes, so pre-forked workers may share the code that makes the producer.
"""

from __future__ import annotations

import os
import sys

from loghub import EnvironmentCredentials, Producer, ProducerConfig, ProjectConfig
from loghub.channels import ProcessFileChannel

project = ProjectConfig("my-project", endpoint=os.environ["LOGHUB_ENDPOINT"], credentials=EnvironmentCredentials())
base = sys.argv[1]
with Producer(
    project,
    config=ProducerConfig(linger_ms=200),
    channel=ProcessFileChannel(f"{base}/logs"),
    dead_letter=ProcessFileChannel(f"{base}/refused"),
) as producer:
    future = producer.send("my-project", "app-log", {"event": "paid", "order": "4711"})
    if os.environ.get("CRASH"):
        os.kill(os.getpid(), 9)
    print(f"on the disk: {future.stored}, found here when it started: {producer.stats().recovered}")
    producer.flush(timeout=30)
