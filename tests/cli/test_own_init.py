"""Process 1 of a container reaps orphans, passes signals on, and ends with the agent's status."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import eventually

#: Adopts orphans like process 1. The child leaves an orphan that ends, and waits for a signal.
PROGRAM = """
import ctypes, os, signal, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
from producer.cli.own_init import continue_in_child
continue_in_child()
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
subprocess.run(["/bin/sh", "-c", "sleep 0.01 &"])
print(os.getppid(), flush=True)
while True:
    signal.pause()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="there is no process that adopts orphans")
def test_process_1_collects_orphans_passes_signals_on_and_ends_as_the_agent_did() -> None:
    """Process 1 reaps orphans, passes signals on, and ends with the child's status."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        parent = int(process.stdout.readline())
        assert parent == process.pid
        children = Path(f"/proc/{parent}/task/{parent}/children")
        eventually(lambda: len(children.read_text().split()) == 1, "the orphan is collected")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 7
