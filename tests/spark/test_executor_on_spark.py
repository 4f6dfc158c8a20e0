"""get_producer in real tasks of a real Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from producer import ProducerConfig, ProjectConfig
from producer.server import LogHubServer
from producer.spark import get_producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Above the limit of kept producers.
_PROJECTS = 6


def test_task_may_send_to_more_projects_than_are_kept(spark: SparkSession, server: LogHubServer) -> None:
    """A running task keeps every producer that it asked for, task after task."""
    endpoint, key, secret = server.endpoint, server.access_key_id, server.access_key_secret

    def send_to_each(rows: Iterable[int]) -> None:
        config = ProducerConfig(linger_ms=100)
        producers = [
            get_producer(
                ProjectConfig(f"project-{n}", endpoint=endpoint, access_key_id=key, access_key_secret=secret),
                config=config,
            )
            for n in range(_PROJECTS)
        ]
        futures = [
            producer.send(f"project-{n}", "l", {"row": str(row)})
            for row in rows
            for n, producer in enumerate(producers)
        ]
        for future in futures:
            future.result(30)

    for _ in range(2):
        spark.sparkContext.parallelize(range(4), 2).foreachPartition(send_to_each)
    arrived = [len(server.logs(f"project-{n}", "l")) for n in range(_PROJECTS)]
    assert arrived == [8] * _PROJECTS
