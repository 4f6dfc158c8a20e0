"""Send the rows of a Spark DataFrame with `foreachPartition`.

`write_partition` takes the options of `format("loghub")` and returns a function for `foreachPartition`. Each worker
process makes one producer after the fork and keeps it for the next task. The function returns when every row is
acknowledged. If a row fails, it raises: the task fails, and Spark runs it again. The access key is taken from the
workers' environment.
"""

from __future__ import annotations

import os

from loghub.spark import metrics_accumulator, session, write_partition


def main() -> None:
    """Send a thousand rows from four partitions."""
    logstore = {"endpoint": os.environ["LOGHUB_ENDPOINT"], "project": "my-project", "logstore": "app-log"}
    spark = session(app_name="foreachPartition")
    total = metrics_accumulator(spark.sparkContext)
    rows = spark.range(0, 1000, numPartitions=4).selectExpr("id", "id % 7 as day", "concat('day-', id % 7) as topic")
    rows.foreachPartition(write_partition({**logstore, "topicColumn": "topic"}, metrics=total))
    print(f"{total.value.rows} rows acknowledged in {total.value.batches} requests")
    spark.stop()


if __name__ == "__main__":
    main()
