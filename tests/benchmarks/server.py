"""Start a null server and call it; see :mod:`tests.benchmarks.null_server`."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Without this handler, a proxy of the environment would get the requests to loopback.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))

_SLOWING = {"COVERAGE_PROCESS_CONFIG", "PYTHONDONTWRITEBYTECODE"}


def unmeasured() -> dict[str, str]:
    """Return the environment of a timed process, which coverage.py and compiling imports would slow down."""
    return {name: value for name, value in os.environ.items() if name not in _SLOWING}


@contextmanager
def null_server() -> Iterator[int]:
    """Yield the port of a null server in its own process."""
    command = [sys.executable, "-m", "tests.benchmarks.null_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=unmeasured()) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def take_counts(port: int) -> dict[str, Any]:
    """Return the :class:`~tests.benchmarks.null_server.Counts` since the last call."""
    with _DIRECT.open(f"http://127.0.0.1:{port}/stats", timeout=60) as answer:
        return dict(json.load(answer))


def progress(port: int) -> float:
    """Return the raw bytes that the null server accepted since the last :func:`take_counts`."""
    with _DIRECT.open(f"http://127.0.0.1:{port}/progress", timeout=60) as answer:
        return float(answer.read())


def set_mode(port: int, mode: str) -> None:
    """Choose how requests are answered: see :class:`tests.benchmarks.null_server.Mode`."""
    with _DIRECT.open(f"http://127.0.0.1:{port}/mode?{mode}", data=b"", timeout=60):
        pass
