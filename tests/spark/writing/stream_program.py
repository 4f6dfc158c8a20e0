"""A streaming query from a directory of JSON files to LogHub, in a process that a test kills.

The argument is JSON: ``options`` of the write, ``incoming``, ``checkpoint``. Each micro-batch takes one file.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from producer.ship.session import build_context

ASKED = json.loads(sys.argv[1])


def main() -> None:
    build_context(master="local[2,4]")
    spark = SparkSession.builder.getOrCreate()
    query = (
        spark.readStream.schema("n long")
        .option("maxFilesPerTrigger", 1)
        .json(ASKED["incoming"])
        .writeStream.format("loghub")
        .options(**ASKED["options"])
        .option("checkpointLocation", ASKED["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
