"""Spark: send the rows of a DataFrame, each task with the producer of its worker process.

The closure carries the configuration, never a producer. `PartitionSender` gets this process's producer (made after the
fork, kept for the next task) and, on leaving its block, waits for every acknowledgement; if one is missing it raises,
the task fails, and Spark runs it again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from pyspark.sql import Row

from producer import Credentials, ProducerConfig, ProjectConfig, StaticCredentials
from producer.spark.sender import PartitionSender
from producer.spark.session import build_session


def main() -> None:
    """Send a thousand rows from four partitions."""
    # Read here: the workers of a cluster do not have this process's environment.
    key = Credentials(
        access_key_id=os.environ["LOGHUB_ACCESS_KEY_ID"], access_key_secret=os.environ["LOGHUB_ACCESS_KEY_SECRET"]
    )
    project = ProjectConfig(
        "my-project", endpoint=os.environ["LOGHUB_ENDPOINT"], credentials=StaticCredentials(credentials=key)
    )
    config = ProducerConfig(linger_ms=200)

    def send(rows: Iterable[Row]) -> None:
        with PartitionSender(project, "app-log", topic="spark", config=config) as sender:
            for row in rows:
                sender.send(row.asDict(), position=f"id {row.id}")

    session = build_session(app_name="foreachPartition")
    session.range(0, 1000, numPartitions=4).selectExpr("id", "id % 7 as day").foreachPartition(send)
    print("1000 rows acknowledged")
    session.stop()


if __name__ == "__main__":
    main()
