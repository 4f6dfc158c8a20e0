"""The Spark examples do what they say."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.server import LogHubServer

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("foreach_partition", "spark_batch", "spark_streaming", "spark_read")

#: Runs programs one after the other in one process, because the JVM starts slowly.
RUNNER = """
import runpy, sys
for path in sys.argv[1:]:
    runpy.run_path(path, run_name="__main__")
"""


@pytest.fixture(scope="module")
def ran(quick_java: str) -> Iterator[tuple[LogHubServer, str]]:
    """Run all examples against a server as their documentation says, and return it and their output."""
    with LogHubServer() as server:
        environment = os.environ | {
            "LOGHUB_ENDPOINT": server.endpoint,
            "LOGHUB_ACCESS_KEY_ID": server.access_key_id,
            "LOGHUB_ACCESS_KEY_SECRET": server.access_key_secret,
        }
        environment.pop("COVERAGE_PROCESS_CONFIG", None)
        command = [sys.executable, "-c", RUNNER, *(str(EXAMPLES / f"{name}.py") for name in NAMES)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr
        yield server, done.stdout


def test_every_row_of_foreach_partition_arrives(ran: tuple[LogHubServer, str]) -> None:
    """The example of foreachPartition delivers its thousand rows once."""
    server, output = ran
    assert "1000 rows acknowledged" in output
    ids = [dict(log.contents)["id"] for log in server.logs("my-project", "app-log")]
    assert sorted(map(int, ids)) == list(range(1000))


def test_batch_job_that_runs_twice_writes_once(ran: tuple[LogHubServer, str]) -> None:
    """The batch example stores each order once in two runs, with its country as the topic."""
    server, output = ran
    assert "1000 orders in LogHub, 1000 different ones" in output
    assert {log.topic for log in server.logs("my-project", "orders")} == {"cn", "de", "br"}


def test_the_second_run_of_the_streaming_example_writes_only_the_second_file(ran: tuple[LogHubServer, str]) -> None:
    """The second run of the streaming example writes only the second file, and the metrics have both."""
    server, output = ran
    assert "micro-batch 0: 300 rows" in output
    assert "micro-batch 1: 200 rows" in output
    assert server.count("my-project", "clicks") == 500


def test_reading_example_aggregates(ran: tuple[LogHubServer, str]) -> None:
    """The reading example counts requests and errors by page."""
    lines = ran[1].splitlines()
    assert "/page/0: 250 requests, 10 errors, slowest 996 ms" in lines
    assert len([line for line in lines if line.startswith("/page/")]) == 4
