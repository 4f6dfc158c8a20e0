"""A signal handler that raises in a call of a channel, as Ctrl-C does, harms that call's events at most."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", ["memory", "file", "spillable"])
def test_an_interrupted_call_harms_no_other(kind: str, tmp_path: Path) -> None:
    """Hundreds of calls are interrupted at random beside a thread: all other events are there once, nothing hangs."""
    # In a process without coverage: the handler may raise inside whatever measures it, and leave that in disorder.
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE", "COV_"))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.channels.interrupted_program", kind, str(tmp_path)],
        cwd=ROOT,
        env=plain,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
