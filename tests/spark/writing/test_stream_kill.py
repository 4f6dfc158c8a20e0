"""A streaming query that is killed by SIGKILL and restarted repeatedly stores each row once.

``PRODUCER_SOAK=1`` kills it ten times.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from producer.server import LogHubServer
from producer.server.faults import Action, answer
from producer.server.messages import ApiRequest
from tests.spark.cluster.cluster import until
from tests.spark.writing.kit import LOGSTORE, PROJECT, numbers, target

PROGRAM = Path(__file__).with_name("stream_program.py")
KILLS = 10 if os.environ.get("PRODUCER_SOAK") else 1
FILES, ROWS = 4 * KILLS, 200
_BUSY = answer(503, "ServerBusy")


def start(server: LogHubServer, folder: Path) -> subprocess.Popen[str]:
    """Start the query in a session of processes of its own."""
    options = {**target(server), "deliveryGuarantee": "exactlyOnce", "chunkRows": "20"}
    asked = {"options": options, "incoming": str(folder / "in"), "checkpoint": str(folder / "checkpoint")}
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), json.dumps(asked)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


class Hold:
    """Refuses all writes from the middle of a micro-batch on, so that a kill there finds it half written."""

    def __init__(self, server: LogHubServer, goal: int) -> None:
        self._server, self._goal, self._holds = server, goal, False

    def __call__(self, request: ApiRequest) -> Action | None:
        count = self._server.count(PROJECT, LOGSTORE)
        self._holds |= count >= self._goal and 0 < count % ROWS <= ROWS // 2
        return _BUSY(request) if self._holds else None

    def holds(self) -> bool:
        return self._holds


def kill(query: subprocess.Popen[str]) -> None:
    """End driver, JVM and Python workers at once."""
    os.killpg(query.pid, signal.SIGKILL)
    query.communicate()


@pytest.mark.timeout(1200 if KILLS > 2 else 600)
@pytest.mark.usefixtures("quick_java")
def test_killed_query_is_completed_and_repeats_nothing(server: LogHubServer, tmp_path: Path) -> None:
    """A query that is killed in a micro-batch is completed by its restart, which repeats no row."""
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        lines = (json.dumps({"n": row}) + "\n" for row in range(number * ROWS, (number + 1) * ROWS))
        (tmp_path / "in" / f"{number:03d}.json").write_text("".join(lines))
    dice = random.Random(KILLS)
    for _ in range(KILLS):
        query = start(server, tmp_path)
        hold = Hold(server, server.count(PROJECT, LOGSTORE) + dice.randint(50, 3 * ROWS))
        added = server.faults.add(hold, operation="PutLogs")
        until(hold.holds, query)
        kill(query)
        server.faults.remove(added)
    query = start(server, tmp_path)
    output, _ = query.communicate(timeout=200)
    assert query.returncode == 0, output
    assert sorted(numbers(server)) == list(range(FILES * ROWS))
    assert any(request.error_code == "InvalidSequenceId" for request in server.requests)
    assert re.search(r"micro-batch \d+: \d+ of its \d+ rows were already stored in \S+ at \S+,", output)
