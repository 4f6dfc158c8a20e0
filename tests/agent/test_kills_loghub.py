"""The whole way, killed: a log that rotates, an agent that dies at random instants, and a LogHub that loses answers."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from producer.server import LogHubServer
from producer.server.faults import drop_answer

from ..support.waiting import eventually
from .killing import SOAK
from .test_kills import _KILLS, Log

_REPOSITORY = Path(__file__).parents[2]
_CONFIG = """
[agent]
name = "a1"
state = "{folder}/state"

[sources.logs]
type = "taildir"
paths = ["{folder}/logs/a.log*"]
settle = 0.5
channels = ["disk"]

[channels.disk]
type = "file"
minimum_free_space = 0

[sinks.loghub]
type = "loghub"
channel = "disk"
project = "p"
logstore = "l"
endpoint = "{endpoint}"
access_key_id = "{key}"
access_key_secret = "{secret}"
retries = 0
"""
#: So many kills take longer than other tests may.
pytestmark = pytest.mark.timeout(3600 if SOAK else 300)


def _stored(server: LogHubServer) -> Counter[str]:
    try:
        return Counter(dict(log.contents)["content"].split()[1] for log in server.logs("p", "l"))
    except LookupError:
        return Counter()


@contextmanager
def _agent(config: Path) -> Iterator[None]:
    """An agent, which is killed at the end."""
    command = [sys.executable, "-m", "producer", "agent", "--config", str(config)]
    process = subprocess.Popen(command, cwd=_REPOSITORY)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_each_line_is_stored_once_in_loghub(tmp_path: Path) -> None:
    """kill -9 of the agent, a tenth of all answers lost: no line is lost, and none is stored twice."""
    seed = random.randrange(1 << 30) if _KILLS > 6 else 5
    chance = random.Random(seed)
    (tmp_path / "logs").mkdir()
    config = tmp_path / "agent.toml"
    with LogHubServer() as server, Log(tmp_path / "logs", seed, copies=False) as log:
        config.write_text(
            _CONFIG.format(
                folder=tmp_path,
                endpoint=server.endpoint,
                key=server.access_key_id,
                secret=server.access_key_secret,
            )
        )
        server.faults.add(drop_answer(), probability=0.1, seed=seed, operation="PutLogs")
        for _ in range(_KILLS):
            before = sum(_stored(server).values())
            with _agent(config):
                eventually(lambda: sum(_stored(server).values()) > before, "a delivery")  # noqa: B023  # called at once
                threading.Event().wait(chance.uniform(0, 0.3))
        with _agent(config):
            log.end()
            wanted = {f"{number:09d}" for number in range(log.count)}
            eventually(lambda: wanted <= _stored(server).keys(), "the delivery of each line")
        found = _stored(server)
    print(f"seed {seed}, {_KILLS} kills, {log.rotations} rotations, {log.count} lines")
    assert found == Counter(wanted)
    assert log.rotations
