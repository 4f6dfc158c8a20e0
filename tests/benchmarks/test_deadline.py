"""Each script of the benchmark ends."""

import subprocess
import sys


def test_a_script_that_hangs_is_ended_with_the_line_of_each_thread_on_stderr() -> None:
    """A script that hangs is ended after its deadline, with the line of each thread on stderr."""
    code = (
        "import threading; from tests.benchmarks.deadline import deadline\nwith deadline(0.2): threading.Event().wait()"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("Timeout (0:00:00.2")
    assert "in wait" in done.stderr
