"""A cluster whose machines lack the SDK ships files."""

import json
import os
import subprocess
import sys
from pathlib import Path

from producer.server import LogHubServer
from tests.spark.conftest import LOGSTORE, PROJECT

from .cluster import PATIENCE, Cluster
from .test_cluster import PROGRAMS

_SUBMITTED = "--conf spark.executor.memory=512m --conf spark.driver.memory=512m pyspark-shell"


def test_files_are_shipped_by_workers_that_the_packages_own_daemon_forks(
    cluster: Cluster, server: LogHubServer, tmp_path: Path
) -> None:
    """Files are shipped by workers that the package's own daemon forks, from the zip file."""
    file = tmp_path / "a.log"
    file.write_text("".join(f"line {number}\n" for number in range(1000)))
    program = [PROGRAMS / "ship_files.py", cluster.url, file]
    target = [server.endpoint, server.access_key_id, server.access_key_secret]
    environment = {"PYSPARK_PYTHON": str(cluster.python), "PYSPARK_SUBMIT_ARGS": _SUBMITTED}
    done = subprocess.run(
        [sys.executable, *program, *target],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    told = json.loads(done.stdout)
    assert (told["lines"], told["failure"], server.count(PROJECT, LOGSTORE)) == (1000, None, 1000)
    assert told["looked"] == [["producer.ship.python_daemon", "producer.zip"]] * 2
