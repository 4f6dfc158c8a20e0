"""Long tests of the cluster, for ``make soak``."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from producer.server import LogHubServer
from producer.server.faults import delay

from .cluster import Cluster, ended, until
from .kit import held
from .test_writing import ONCE, ROWS, SPECULATIVE, WEBLOG, count, write

PROGRAMS = Path(__file__).parent / "programs"
pytestmark = pytest.mark.timeout(1200)


def test_rows_arrive_through_an_environment_that_came_with_the_job(
    cluster: Cluster, server: LogHubServer, packed_environment: Path
) -> None:
    """A packed environment, shipped by ``--archives``, runs the workers of a driver without the SDK."""
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


def test_at_least_once_duplicates_where_exactly_once_does_not(
    cluster: Cluster, server: LogHubServer, sdk: Path
) -> None:
    """Without exactlyOnce every row arrives, and rows of a killed executor arrive twice."""
    server.faults.add(delay(0.1), operation="PutLogs")
    job = write(cluster, server, sdk, batch_count_threshold="1000", io_thread_count="1")
    until(lambda: count(server) >= ROWS // 4, job)
    os.kill(cluster.executors()[0], signal.SIGKILL)
    digest = tuple(json.loads(ended(job, 1200))["digest"])
    found = held(server)
    assert found.digest == digest
    assert found.duplicates > 0


def test_speculative_copies_repeat_nothing(cluster: Cluster, server: LogHubServer, sdk: Path) -> None:
    """Speculative copies of a slow task repeat no row."""
    job = write(cluster, server, sdk, rows=60_000, slow=0.4, conf=SPECULATIVE, **ONCE)
    output, errors = job.communicate(timeout=600)
    assert job.returncode == 0, errors
    assert "speculatable" in errors
    found = held(server)
    assert (found.digest, found.duplicates) == (tuple(json.loads(output)["digest"]), 0)
    assert any(request.error_code == "InvalidSequenceId" for request in server.requests)
