"""No script of the benchmark runs for ever."""

import subprocess
import sys


def test_a_script_that_hangs_is_ended_and_says_where() -> None:
    """After its deadline, with the line of each thread."""
    code = (
        "import threading; from tests.benchmarks.deadline import deadline\nwith deadline(0.2): threading.Event().wait()"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("Timeout (0:00:00.2")
    assert "in wait" in done.stderr
