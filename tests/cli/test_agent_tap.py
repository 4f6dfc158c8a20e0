"""``producer agent tap``: events as they pass a running agent."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from producer.cli import main

CONFIG = """
[agent]
monitoring = 0
tap = true
state = "{state}"
[sources.r1]
type = "stress"
size = 20
batch_size = 10
max_events_per_second = 1000
channels = ["c1"]
[channels.c1]
type = "memory"
[sinks.k1]
type = "null"
channel = "c1"
"""


def test_a_running_agent_is_seen_from_another_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``tap`` prints a source's and a sink's events of an agent's process, and ``top --once`` its rates."""
    path = tmp_path / "agent.toml"
    path.write_text(CONFIG.format(state=tmp_path / "state").replace("monitoring = 0", 'monitoring = "127.0.0.1:0"'))
    agent = subprocess.Popen(
        [sys.executable, "-m", "producer", "agent", "--config", str(path)], stderr=subprocess.PIPE, text=True
    )
    try:
        assert agent.stderr is not None
        address = next(found[1] for line in agent.stderr if (found := re.search(r"monitoring on http://(\S+)/", line)))
        for name in ("r1", "k1"):
            assert main(["agent", "tap", name, "--monitoring", address, "--limit", "3", "--rate", "100"]) == 0
            lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            assert [(len(line["body"]) > 0, line["size"]) for line in lines] == [(True, 20)] * 3
        assert main(["agent", "top", "--monitoring", address, "--once"]) == 0
        assert re.search(r"^r1 +stress +running +[1-9]", capsys.readouterr().out, re.MULTILINE)
        assert main(["agent", "tap", "r2", "--monitoring", address]) == 1
        assert "name must be that of a source or a sink: r1, k1" in capsys.readouterr().err
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.communicate(timeout=60)
    assert agent.returncode == 0
