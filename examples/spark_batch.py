"""Write a Spark DataFrame to LogHub: each row once, however often the job runs.

Spark finds the data source `loghub` where the package is installed. With `deliveryGuarantee=exactlyOnce` and a name for
the run, a second run adds only the missing rows. This program runs the job twice to show it.
"""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

from loghub.spark import session

LOGSTORE = {"endpoint": os.environ["LOGHUB_ENDPOINT"], "project": "my-project", "logstore": "orders"}
# The access key is not an option: the workers of this machine inherit this process's environment. On a cluster, name a
# credentials provider (credentialsProvider=package.module:name), or set spark.executorEnv.LOGHUB_ACCESS_KEY_ID.


def write(spark: SparkSession) -> None:
    """Write a thousand orders, with their own times and a topic for each country."""
    orders = spark.range(1000).selectExpr(
        "id as order_id",
        "array('cn', 'de', 'br')[id % 3] as country",
        "timestamp_seconds(1700000000 + id) as ordered_at",
        "round(id * 1.25, 2) as amount",
    )
    (
        orders.write.format("loghub")
        .options(**LOGSTORE, topicColumn="country", timeColumn="ordered_at")
        .options(deliveryGuarantee="exactlyOnce", runId="orders-2026-11-21")
        .mode("append")
        .save()
    )


def main() -> None:
    """Write twice, and count the logs in LogHub."""
    spark = session(app_name="orders")
    write(spark)
    write(spark)
    held = spark.read.format("loghub").options(**LOGSTORE).schema("order_id bigint").load()
    print(f"{held.count()} orders in LogHub, {held.distinct().count()} different ones")
    spark.stop()


if __name__ == "__main__":
    main()
