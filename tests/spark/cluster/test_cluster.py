"""Jobs of a real cluster whose machines do not have the SDK: what they send arrives, also when an executor dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from producer.server import LogHubServer
from producer.server.faults import answer, delay
from tests.spark.conftest import LOGSTORE, PROJECT
from tests.support.waiting import eventually

from .cluster import PATIENCE, Cluster, ended, until
from .kit import held

PROGRAMS = Path(__file__).parent / "programs"
WEBLOG = Path(__file__).parent / "weblog.py"


def start(cluster: Cluster, server: LogHubServer, rows: int, **options: Any) -> subprocess.Popen[str]:
    """Start the program that ships rows, in two partitions."""
    target = (server.endpoint, server.access_key_id, server.access_key_secret)
    return cluster.submit(PROGRAMS / "ship_rows.py", *target, rows, 2, **options)


def test_rows_arrive_through_an_sdk_that_came_with_the_job(cluster: Cluster, server: LogHubServer, sdk: Path) -> None:
    """Shipped by ``--py-files``, the SDK is imported from the zip and delivers every row once."""
    told = json.loads(ended(start(cluster, server, 20_000, py_files=[sdk, WEBLOG])))
    assert {Path(file).parents[1].name for file in told["package"]} == {sdk.name}
    assert (held(server).digest, held(server).duplicates) == (tuple(told["digest"]), 0)
    assert held(server).digest[0] == 20_000


def test_rows_arrive_through_an_environment_that_came_with_the_job(
    cluster: Cluster, server: LogHubServer, packed_environment: Path
) -> None:
    """Shipped by ``--archives``, a packed environment is what runs the workers."""
    job = start(
        cluster,
        server,
        20_000,
        py_files=[WEBLOG],
        archives=[f"{packed_environment}#environment"],
        conf={"spark.pyspark.python": "./environment/bin/python"},
    )
    told = json.loads(ended(job))
    assert all("/environment/lib/" in file for file in told["package"]), told["package"]
    assert (held(server).digest, held(server).duplicates) == (tuple(told["digest"]), 0)


def test_rows_of_a_killed_executor_arrive(cluster: Cluster, server: LogHubServer, sdk: Path) -> None:
    """Its partition is sent again from the start: nothing is missing, and what had arrived is there twice."""
    slow = server.faults.add(delay(0.5))
    job = start(cluster, server, 60_000, py_files=[sdk, WEBLOG])
    until(lambda: {group.topic for group in server.log_groups(PROJECT, LOGSTORE)} == {"0", "1"}, job)
    busy = server.faults.add(answer(503, "ServerBusy"))
    assert server.count(PROJECT, LOGSTORE) < 30_000, "a partition was done before its executor could be killed"
    killed = cluster.executors()[0]
    os.kill(killed, signal.SIGKILL)
    until(lambda: killed not in cluster.executors(), job)
    server.faults.remove(slow)
    server.faults.remove(busy)
    output, errors = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, errors
    assert "ExecutorLostFailure" in errors
    assert held(server).digest == tuple(json.loads(output)["digest"])
    assert held(server).duplicates > 0


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


def test_job_that_is_ended_leaves_nothing(cluster: Cluster) -> None:
    """Driver, executors and Python workers of a job that hangs are gone after ``end_jobs``."""
    job = cluster.submit(PROGRAMS / "sleep.py")
    until(lambda: len(cluster.python_workers()) == 2, job)
    assert len(cluster.executors()) == 2
    cluster.end_jobs()
    assert job.poll() is not None
    eventually(lambda: not cluster.executors() and not cluster.python_workers())
