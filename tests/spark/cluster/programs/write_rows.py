"""Write rows of the generated web log with ``format("loghub")``; print their digest and the workers' encoders as
JSON.

The argument is JSON: ``options`` of the write, ``rows``, ``partitions``, ``again`` (a logstore for a second write by
``write_partition``, or empty), ``slow`` (the seconds for which the first attempt at the first partition sleeps before
each record batch).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession
from weblog import digest, weblog

ASKED = json.loads(sys.argv[1])


def resting(seconds: float) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a step of the plan that delays one attempt, so that Spark starts a speculative copy of it."""

    def step(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        behind = context is not None and context.attemptNumber() == 0 and context.partitionId() == 0
        for batch in batches:
            if behind:
                time.sleep(seconds)
            yield batch

    return step


def twin(_rows: Iterator[Any]) -> Iterator[str]:
    """Yield the kind of encoders in a worker's process."""
    from producer.wire.speed import TWIN

    yield TWIN


def main() -> None:
    from producer.spark import register, write_partition

    session = SparkSession.builder.appName("write rows").getOrCreate()
    register(session)
    source = weblog(session, ASKED["rows"], ASKED["partitions"])
    rows = source.mapInArrow(resting(ASKED["slow"]), source.schema) if ASKED["slow"] else source
    rows.write.format("loghub").options(**ASKED["options"]).mode("append").save()
    if ASKED["again"]:
        rows.foreachPartition(write_partition({**ASKED["options"], "logstore": ASKED["again"]}))
    twins = session.sparkContext.range(2, numSlices=2).mapPartitions(twin).collect()
    print(json.dumps({"digest": digest(source), "twins": twins}))
    session.stop()


if __name__ == "__main__":
    main()
