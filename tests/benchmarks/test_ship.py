"""The benchmark of producer ship runs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from tests.benchmarks import ship
from tests.benchmarks.ship import CpuOfTree, Result, report


def test_ship_is_measured_without_spark(capsys: pytest.CaptureFixture[str]) -> None:
    """Each case has a line with its rate, and has been told of when it ended."""
    cases = ["text", "multiline", "gzip"]
    ship.main(["--megabytes=1", "--rounds=1", "--engines", "local", "--case", *cases])
    printed = capsys.readouterr()
    lines = printed.out.splitlines()[: len(cases)]
    assert all(line.startswith(told) for line, told in zip(lines, printed.err.splitlines(), strict=True))
    assert [line.split()[:2] for line in lines] == [["local", name] for name in cases]
    assert all("MB/s" in line for line in lines)


def test_goals_are_told_with_their_verdict() -> None:
    """Rates, ratios, CPU seconds and the time of a cold start, each beside its goal."""
    results = {
        ("spark", "text"): [Result(400.0, 4.0, 9.0)],
        ("one", "text"): [Result(400.0, 4.0, 9.0)],
        ("cluster", "text"): [Result(300.0, 4.0, 9.0)],
        ("spark", "gzip"): [Result(300.0, 9.0, 9.0)],
        ("local", "cold"): [Result(3.0, 99.0, 1.4)],
    }
    told = report(results, 200.0)
    assert " ".join(told[0].split()) == "spark text 400.0 MB/s 4.0 CPU s/GB 9.0 s goal 300 MB/s: met"
    assert told[len(results) :] == [
        "text, spark / twice one process: 0.50   goal 0.6: missed",
        "text, spark, CPU seconds a GB: 4.0   goal 5: met",
        "gzip, spark / gzip -dc: 1.50   goal 0.8: met",
        "text, cluster of 2 workers / local[2]: 0.75   goal 0.9: missed",
        "cold, local, the whole command: 1.40 s   goal 1.5: met",
    ]


def test_a_command_that_does_not_end_is_ended_at_its_limit() -> None:
    """However much it prints: nobody waits for it."""
    endless = "import time; print('x' * 1_000_000, flush=True); time.sleep(1000)"
    with (
        subprocess.Popen([sys.executable, "-c", endless], stdout=subprocess.PIPE, text=True) as command,
        pytest.raises(subprocess.TimeoutExpired),
    ):
        ship._finish(command, CpuOfTree(command.pid), time.monotonic() + 0.1)
    assert command.returncode == -signal.SIGKILL


def test_what_processes_have_spent_that_nobody_waits_for_is_counted() -> None:
    """As Spark's Python workers: whoever has started them ignores their end."""
    spend = "import time\nwhile time.process_time() < 0.2: pass\nprint()"
    start = """
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", sys.argv[1]]).wait()
"""
    with subprocess.Popen([sys.executable, "-c", start, spend], stdout=subprocess.PIPE) as command:
        spent = CpuOfTree(command.pid)
        while command.poll() is None:
            spent.look()
    assert 0.15 < spent.seconds < 2
