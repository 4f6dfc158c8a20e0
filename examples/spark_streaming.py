"""Run a Spark streaming query from a directory of JSON files to LogHub.

Spark's checkpoint records which files were written. With `deliveryGuarantee=exactlyOnce` the next run completes a
micro-batch that was half written when the query died, without duplicates.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from loghub.spark import session

LOGSTORE = {"endpoint": os.environ["LOGHUB_ENDPOINT"], "project": "my-project", "logstore": "clicks"}


def run(spark: SparkSession, incoming: Path, checkpoint: Path) -> None:
    """Write the files that came since the last run, then stop.

    `processingTime` in place of `availableNow` keeps the query running.
    """
    clicks = spark.readStream.schema("user string, page string, at timestamp").json(str(incoming))
    query = (
        clicks.writeStream.format("loghub")
        .options(**LOGSTORE, timeColumn="at", deliveryGuarantee="exactlyOnce")
        .option("metricsPath", str(checkpoint.parent / "metrics.jsonl"))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def arrive(incoming: Path, name: str, count: int) -> None:
    """Add a file of clicks, complete when it appears under its name."""
    draft = incoming / f".{name}"
    click = {"user": "ada", "page": "/", "at": "2026-11-21T12:00:00Z"}
    draft.write_text("".join(json.dumps(click) + "\n" for _ in range(count)))
    draft.rename(incoming / name)


def main() -> None:
    """Run the query twice; the second run writes only the files added after the first."""
    spark = session(app_name="clicks")
    with tempfile.TemporaryDirectory() as folder:
        incoming, checkpoint = Path(folder, "incoming"), Path(folder, "checkpoint")
        incoming.mkdir()
        for name, count in (("monday.json", 300), ("tuesday.json", 200)):
            arrive(incoming, name, count)
            run(spark, incoming, checkpoint)
        for line in Path(folder, "metrics.jsonl").read_text().splitlines():
            batch = json.loads(line)
            print(f"micro-batch {batch['batch']}: {batch['rows']} rows in {batch['batches']} requests")
    spark.stop()


if __name__ == "__main__":
    main()
