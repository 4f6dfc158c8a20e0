"""Read a logstore back with Spark, and aggregate it."""

from __future__ import annotations

import os

from loghub import EnvironmentCredentials, Producer, ProjectConfig
from loghub.spark import session

LOGSTORE = {"endpoint": os.environ["LOGHUB_ENDPOINT"], "project": "my-project", "logstore": "access"}


def fill() -> None:
    """Send the logs of an application, to be read back."""
    project = ProjectConfig("my-project", endpoint=LOGSTORE["endpoint"], credentials=EnvironmentCredentials())
    with Producer(project) as producer:
        stream = producer.stream("my-project", "access", topic="web")
        stream.send_many(
            [{"path": f"/page/{n % 4}", "status": 500 if n % 50 == 0 else 200, "ms": n} for n in range(1000)]
        )


def main() -> None:
    """Print requests, errors and the slowest request of each page."""
    fill()
    spark = session(app_name="reading")
    # The schema names fields of the logs, with their types; __time__, __topic__ and others may be named, too.
    logs = spark.read.format("loghub").options(**LOGSTORE).schema("path string, status int, ms int").load()
    logs.createOrReplaceTempView("access")
    pages = spark.sql(
        "SELECT path, count(*) AS requests, count_if(status >= 500) AS errors, max(ms) AS slowest "
        "FROM access GROUP BY path ORDER BY path"
    )
    for page in pages.collect():
        print(f"{page.path}: {page.requests} requests, {page.errors} errors, slowest {page.slowest} ms")
    spark.stop()


if __name__ == "__main__":
    main()
