"""Provoke errors in a Spark of its own, all of whose output is kept, to find secrets and missing messages.

The argument is JSON: ``options`` of the write, ``folder``. The output of this process and its JVM goes to
``folder/output``, and Spark's event log to ``folder/events``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path

ASKED = json.loads(sys.argv[1])
FOLDER, OPTIONS = Path(ASKED["folder"]), ASKED["options"]
OUTPUT = FOLDER / "output"

# The JVM inherits these.
descriptor = os.open(OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.dup2(descriptor, 1)
os.dup2(descriptor, 2)
(FOLDER / "events").mkdir()
settings = {"enabled": "true", "compress": "false", "dir": (FOLDER / "events").as_uri()}
events = " ".join(f"--conf spark.eventLog.{name}={value}" for name, value in settings.items())
os.environ["PYSPARK_SUBMIT_ARGS"] = f"{events} pyspark-shell"

from pyspark.sql import SparkSession  # noqa: E402

from producer.ship.session import build_context  # noqa: E402  (the JVM starts with what is above)

build_context(master="local[2]")
spark = SparkSession.builder.getOrCreate()


def write_and_fail() -> None:
    """Run a write, a plan with the options in it, an error of the planning, and one of a task."""
    data = spark.range(10)
    data.write.format("loghub").options(**OPTIONS).mode("append").save()
    names = ("endpoint", "project", "logstore", "accessKeyId", "accessKeySecret")
    back = spark.read.format("loghub").options(**{name: OPTIONS[name] for name in names}).load()
    back.explain(extended=True)
    for more in ({"topicColumn": "x"}, {"logstore": "not a name", "checkTarget": "false"}):
        with contextlib.suppress(Exception):
            data.write.format("loghub").options(**{**OPTIONS, **more}).mode("append").save()


def run_continuously() -> None:
    """Run a query with a continuous trigger until it fails."""
    query = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", 50)
        .load()
        .writeStream.format("loghub")
        .options(**{**OPTIONS, "logstore": "continuous"})
        .option("checkpointLocation", str(FOLDER / "checkpoint"))
        .trigger(continuous="200 milliseconds")
        .start()
    )
    deadline = time.monotonic() + 90
    while "trigger(continuous=...)" not in OUTPUT.read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    query.stop()


write_and_fail()
run_continuously()
spark.stop()
