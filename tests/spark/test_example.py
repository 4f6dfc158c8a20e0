"""The Spark examples do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from producer.server import LogHubServer

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, server: LogHubServer) -> str:
    """The output of an example, which ran against the server as its documentation says."""
    environment = os.environ | {
        "LOGHUB_ENDPOINT": server.endpoint,
        "LOGHUB_ACCESS_KEY_ID": server.access_key_id,
        "LOGHUB_ACCESS_KEY_SECRET": server.access_key_secret,
    }
    answer = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_every_row_of_foreach_partition_arrives(server: LogHubServer) -> None:
    """The example delivers its thousand rows once."""
    assert "1000 rows acknowledged" in run("foreach_partition.py", server)
    ids = [dict(log.contents)["id"] for log in server.logs("my-project", "app-log")]
    assert sorted(map(int, ids)) == list(range(1000))


def test_batch_job_that_runs_twice_writes_once(server: LogHubServer) -> None:
    """The batch example has each order once after two runs, under the topic of its country."""
    assert "1000 orders in LogHub, 1000 different ones" in run("spark_batch.py", server)
    assert {log.topic for log in server.logs("my-project", "orders")} == {"cn", "de", "br"}


def test_streaming_example_writes_only_what_is_new(server: LogHubServer) -> None:
    """The second run of the streaming example writes the second file, and the metrics tell of both."""
    output = run("spark_streaming.py", server)
    assert "micro-batch 0: 300 rows" in output
    assert "micro-batch 1: 200 rows" in output
    assert server.count("my-project", "clicks") == 500


def test_reading_example_aggregates(server: LogHubServer) -> None:
    """The reading example counts requests and errors by page."""
    lines = run("spark_read.py", server).splitlines()
    assert "/page/0: 250 requests, 10 errors, slowest 996 ms" in lines
    assert len([line for line in lines if line.startswith("/page/")]) == 4
