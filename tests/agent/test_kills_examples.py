"""The example configurations under ``kill -9`` and changes of their file: no line lost, none twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from producer.server import LogHubServer

from ..support.waiting import eventually
from .killing import SOAK, seed_for
from .test_examples import moved, server

__all__ = ["server"]

_REPOSITORY = Path(__file__).parents[2]
#: Lines at least, before each death, and deaths.
_LINES, _DEATHS = 300, 20 if SOAK else 2


class _Writer:
    """Writes numbered lines, in the form of an access log, until it is told to end."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self.count = path, 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> _Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._end.set()
        self._thread.join()

    def _write(self) -> None:
        with self._path.open("ab", buffering=0) as file:
            while not self._end.wait(0.03):
                lines = [
                    b'192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET /%09d HTTP/1.1" 200 5 "-" "curl/8"\n' % number
                    for number in range(self.count, self.count + 20)
                ]
                file.write(b"".join(lines))
                self.count += 20


@contextmanager
def _agent(config: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "producer", "agent", "--config", str(config), "--monitoring", "0"]
    process = subprocess.Popen(command, cwd=_REPOSITORY)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _numbers(server: LogHubServer, project: str, logstore: str) -> Counter[int]:
    found: Counter[int] = Counter()
    for log in server.logs(project, logstore):
        content = dict(log.contents)["content"]
        found[int(content.partition("GET /")[2][:9])] += 1
    return found


@pytest.mark.parametrize(
    ("name", "log", "place"),
    [
        ("nginx.toml", "var/log/nginx/access.log", ("web", "nginx-access")),
        ("archive.toml", "var/log/app/app.log", ("shop", "application")),
    ],
)
def test_an_example_loses_nothing_and_repeats_nothing_in_deaths_and_reloads(
    name: str, log: str, place: tuple[str, str], tmp_path: Path, server: LogHubServer
) -> None:
    """Killed while it reads and delivers, its file changed by SIGHUP in between: each line is there once."""
    instants = random.Random(seed_for(7))
    config = tmp_path / name
    config.write_text(moved(name, tmp_path))
    with _Writer(tmp_path / log) as writer:
        for death in range(_DEATHS):
            with _agent(config) as process:
                before = server.count(*place)
                eventually(lambda before=before: server.count(*place) >= before + _LINES)
                config.write_text(
                    moved(name, tmp_path).replace('type = "loghub"', f'type = "loghub"\nretries = {death + 1}')
                )
                os.kill(process.pid, signal.SIGHUP)
                threading.Event().wait(instants.uniform(0, 0.3))  # the instant of the death, not a wait
        writer.end()
        with _agent(config):
            eventually(lambda: server.count(*place) >= writer.count, "every line", 60)
    assert set(_numbers(server, *place).values()) == {1}
