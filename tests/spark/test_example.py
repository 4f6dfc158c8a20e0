"""The Spark example does what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from producer.server import LogHubServer

EXAMPLE = Path(__file__).parents[2] / "examples" / "foreach_partition.py"


def test_every_row_of_the_example_arrives(server: LogHubServer) -> None:
    """Run as documented, against a server from the environment, it delivers its thousand rows once."""
    environment = os.environ | {
        "LOGHUB_ENDPOINT": server.endpoint,
        "LOGHUB_ACCESS_KEY_ID": server.access_key_id,
        "LOGHUB_ACCESS_KEY_SECRET": server.access_key_secret,
    }
    answer = subprocess.run(
        [sys.executable, str(EXAMPLE)], env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert "1000 rows acknowledged" in answer.stdout
    ids = [dict(log.contents)["id"] for log in server.logs("my-project", "app-log")]
    assert sorted(map(int, ids)) == list(range(1000))
