"""``format("loghub")`` works on a real cluster whose machines lack the SDK, while its processes are killed.

``PRODUCER_SOAK=1`` writes a million rows each way.
"""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from producer.server import LogHubServer
from producer.server.faults import answer, delay, drop_answer
from producer.wire import speed
from tests.spark.conftest import LOGSTORE, PROJECT
from tests.spark.writing.kit import target

from .cluster import Cluster, ended, until
from .kit import held

PROGRAM = Path(__file__).parent / "programs" / "write_rows.py"
WEBLOG = Path(__file__).parent / "weblog.py"

SOAK = bool(os.environ.get("PRODUCER_SOAK"))
ROWS = 1_000_000 if SOAK else 50_000
pytestmark = pytest.mark.timeout(1200 if SOAK else 180)

#: Spark starts a copy of a task that is a little slower than the others at its first check.
SPECULATIVE = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "500ms",
}
ONCE = {"deliveryGuarantee": "exactlyOnce", "chunkRows": "1000"}
# Small record batches, so that faults hit a task in the middle of its rows.
SMALL = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1000"}


def write(
    cluster: Cluster,
    server: LogHubServer,
    sdk: Path,
    *,
    again: str = "",
    rows: int = ROWS,
    slow: float = 0.0,
    conf: dict[str, str] | None = None,
    **options: str,
) -> subprocess.Popen[str]:
    """Start the program that writes rows in two partitions, with everything that its executors and driver lack."""
    given = {**target(server), "project": PROJECT, "logstore": LOGSTORE, "retries": "100000", "ackTimeout": "300"}
    asked = {"options": {**given, **options}, "rows": rows, "partitions": 2, "again": again, "slow": slow}
    return cluster.submit(PROGRAM, json.dumps(asked), py_files=[sdk, WEBLOG], conf={**SMALL, **(conf or {})})


def count(server: LogHubServer) -> int:
    return server.count(PROJECT, LOGSTORE)


def test_rows_arrive_once_through_a_shipped_sdk(cluster: Cluster, server: LogHubServer, sdk: Path) -> None:
    """Rows arrive once with an SDK that comes with the job, compiled modules included, by data source and
    ``foreachPartition``.
    """
    told = json.loads(ended(write(cluster, server, sdk, again="by-partition"), 1200 if SOAK else 170))
    digest = tuple(told["digest"])
    for logstore in (LOGSTORE, "by-partition"):
        found = held(server, logstore)
        assert (found.digest, found.duplicates, found.digest[0]) == (digest, 0, ROWS)
    assert told["twins"] == [speed.TWIN] * 2


def test_exactly_once_on_a_cluster_that_falls_apart(cluster: Cluster, server: LogHubServer, sdk: Path) -> None:
    """With lost answers, killed workers, executors and daemons, and copied tasks, every row arrives once."""
    server.faults.add(delay(0.05), operation="PutLogs")
    server.faults.add(drop_answer(), operation="PutLogs", probability=0.1, seed=5)
    server.faults.add(answer(500, "InternalServerError"), operation="PutLogs", probability=0.1, seed=6)
    job = write(cluster, server, sdk, slow=0.1, conf={**SPECULATIVE, "spark.task.maxFailures": "10"}, **ONCE)
    until(lambda: count(server) >= ROWS // 10, job)
    os.kill(cluster.python_workers()[-1], signal.SIGKILL)
    until(lambda: count(server) >= ROWS // 4, job)
    os.kill(cluster.executors()[0], signal.SIGKILL)
    until(lambda: count(server) >= ROWS // 3, job)
    cluster.kill_worker(1)
    output, errors = job.communicate(timeout=1200 if SOAK else 170)
    assert job.returncode == 0, errors
    assert "ExecutorLostFailure" in errors
    digest = tuple(json.loads(output)["digest"])
    found = held(server)
    assert (found.digest, found.duplicates, found.digest[0]) == (digest, 0, ROWS)
    assert any(request.error_code == "InvalidSequenceId" for request in server.requests)
