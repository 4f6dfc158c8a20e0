"""Sends rows of the made-up web log with ``PartitionSender``, and prints what it did as JSON.

Arguments: the server's endpoint, access key id and secret; how many rows, in how many partitions.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

from pyspark import TaskContext
from pyspark.sql import Row, SparkSession
from weblog import digest, weblog

ENDPOINT, KEY_ID, SECRET, COUNT, PARTITIONS = sys.argv[1:]


def send(rows: Iterable[Row]) -> None:
    """Send one partition, each in a topic of its own."""
    from producer import ProducerConfig, ProjectConfig
    from producer.spark.sender import PartitionSender

    project = ProjectConfig("test-project", endpoint=ENDPOINT, access_key_id=KEY_ID, access_key_secret=SECRET)
    config = ProducerConfig(linger_ms=100, base_retry_backoff_ms=10, max_retry_backoff_ms=100, retries=10_000)
    topic = str(TaskContext.get().partitionId())
    with PartitionSender(project, "test-logstore", topic=topic, config=config) as sender:
        for row in rows:
            sender.send(row.asDict())


def imports_on_workers(session: SparkSession) -> list[str]:
    """Where the workers' Pythons have the SDK from."""

    def look(_: int) -> str:
        import producer

        return str(producer.__file__)

    return sorted(set(session.sparkContext.parallelize(range(2), 2).map(look).collect()))


def main() -> None:
    """Send, then tell."""
    session = SparkSession.builder.appName("ship rows").getOrCreate()
    rows = weblog(session, int(COUNT), int(PARTITIONS))
    rows.foreachPartition(send)
    print(json.dumps({"digest": digest(rows), "package": imports_on_workers(session)}))
    session.stop()


if __name__ == "__main__":
    main()
