"""The cluster of the tests does what they count on; and an environment with the SDK can come with a job."""

from __future__ import annotations

import json
from pathlib import Path

from producer.server import LogHubServer

from .cluster import Cluster, ended
from .kit import held

PROGRAMS = Path(__file__).parent / "programs"
WEBLOG = Path(__file__).parent / "weblog.py"


def test_rows_arrive_through_an_environment_that_came_with_the_job(
    cluster: Cluster, server: LogHubServer, packed_environment: Path
) -> None:
    """Shipped by ``--archives``, a packed environment is what runs the workers; the driver has no SDK at all."""
    target = (server.endpoint, server.access_key_id, server.access_key_secret)
    job = cluster.submit(
        PROGRAMS / "ship_rows.py",
        *target,
        20_000,
        2,
        py_files=[WEBLOG],
        archives=[f"{packed_environment}#environment"],
        conf={"spark.pyspark.python": "./environment/bin/python"},
    )
    told = json.loads(ended(job))
    assert all("/environment/lib/" in file for file in told["package"]), told["package"]
    assert (held(server).digest, held(server).duplicates) == (tuple(told["digest"]), 0)


def test_two_workers_are_two_hosts(cluster: Cluster) -> None:
    """Spark runs a speculative copy of a task only on another host than the first."""
    assert len(cluster.workers) == len(cluster.hosts) == 2
    assert len(set(cluster.hosts)) == 2


def test_worker_that_was_killed_is_replaced(cluster: Cluster) -> None:
    """After a SIGKILL a restart gives a new, registered worker in its place."""
    before = cluster.workers
    cluster.kill_worker(1)
    cluster.restart_worker(1)
    assert cluster.workers[0] == before[0]
    assert cluster.workers[1] != before[1]
