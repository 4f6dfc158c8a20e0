"""Send rows of the generated web log from workers that alone have the SDK, and print the result as JSON.

Arguments: the server's endpoint, access key id and secret; the numbers of rows and partitions.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

from pyspark.sql import Row, SparkSession
from weblog import digest, weblog

ENDPOINT, KEY_ID, SECRET, COUNT, PARTITIONS = sys.argv[1:]


def send(rows: Iterable[Row]) -> None:
    from producer.spark import write_partition

    target = {"endpoint": ENDPOINT, "project": "test-project", "logstore": "test-logstore"}
    write_partition({**target, "accessKeyId": KEY_ID, "accessKeySecret": SECRET, "linger_ms": "100"})(rows)


def imports_on_workers(session: SparkSession) -> list[str]:
    """Return the paths of the SDK in the workers' Pythons."""

    def look(_: int) -> str:
        import producer

        return str(producer.__file__)

    return sorted(set(session.sparkContext.parallelize(range(2), 2).map(look).collect()))


def main() -> None:
    session = SparkSession.builder.appName("ship rows").getOrCreate()
    rows = weblog(session, int(COUNT), int(PARTITIONS))
    rows.foreachPartition(send)
    print(json.dumps({"digest": digest(rows), "package": imports_on_workers(session)}))
    session.stop()


if __name__ == "__main__":
    main()
