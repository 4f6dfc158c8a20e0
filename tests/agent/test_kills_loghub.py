"""A rotating log, an agent killed at random instants, and a LogHub that loses answers."""

import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from producer.server import LogHubServer
from producer.server.faults import drop_answer

from .killing import KILLS, TIMEOUT, Log, agent, numbers_stored, seed_for, soon

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
pytestmark = pytest.mark.timeout(TIMEOUT)


def test_each_line_is_stored_once_in_loghub(tmp_path: Path) -> None:
    """After kill -9, with a tenth of answers lost and files renamed or copied, each line is stored once."""
    seed = seed_for(5)
    chance, config = random.Random(seed), tmp_path / "agent.toml"
    with LogHubServer() as server, Log(tmp_path / "logs/a.log", seed, copies=True) as log:
        config.write_text(
            _CONFIG.format(
                folder=tmp_path,
                endpoint=server.endpoint,
                key=server.access_key_id,
                secret=server.access_key_secret,
            )
        )
        server.faults.add(drop_answer(), probability=0.1, seed=seed, operation="PutLogs")
        for _ in range(KILLS):
            before = server.count("p", "l")
            with agent(config):
                soon(lambda: server.count("p", "l") > before, "a delivery")
                threading.Event().wait(chance.uniform(0, 0.3))
        with agent(config):
            wanted = log.end()
            soon(lambda: wanted <= numbers_stored(server, "p", "l").keys(), "the delivery of each line")
        found = numbers_stored(server, "p", "l")
    print(f"seed {seed}, {KILLS} kills, {log.rotations} rotations, {log.count} lines")
    assert found == Counter(wanted)
    assert log.rotations
