"""Interrupts: a signal handler that raises in a channel's call harms only that call's events."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", ["memory", "file", "spillable"])
def test_an_interrupted_call_harms_no_other(kind: str, tmp_path: Path) -> None:
    """Randomly interrupted calls harm no other event, and nothing hangs."""
    # A process without coverage, which an interrupt would leave in disorder.
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
