"""Agents that are killed at random instants while lines are written and files rotated."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.support.waiting import eventually

_SOAK = os.environ.get("PRODUCER_SOAK") == "1"
#: By hand: KILLS=50 pytest tests/agent/test_kills.py
_KILLS = int(os.environ.get("KILLS", "50" if _SOAK else "6"))
#: After so many seconds a copy is a file of its own.
_COPY_SETTLE = 4.0
_REPOSITORY = Path(__file__).parents[2]
#: So many kills take longer than other tests may.
pytestmark = pytest.mark.timeout(3600 if _SOAK else 300)


class Log:
    """Writes numbered lines, and rotates: by a rename, and in turn by a copy and a cut if wanted."""

    def __init__(self, folder: Path, seed: int, *, copies: bool) -> None:
        self._copies = copies
        self._folder, self._random = folder, random.Random(seed)
        self._path = folder / "a.log"
        self.count = self.rotations = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Log:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._end.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._end.wait(self._random.uniform(0, 0.02)):
            numbers = range(self.count, self.count + self._random.randrange(1, 60))
            text = b"".join(b"line %09d %s\n" % (n, b"x" * (n % 90)) for n in numbers)
            half = self._random.randrange(len(text))
            with self._path.open("ab", buffering=0) as file:
                file.write(text[:half])  # a reader may see half a line
                file.write(text[half:])
            self.count = numbers.stop
            if self._random.random() < 0.08:
                self._rotate()

    def _rotate(self) -> None:
        self.rotations += 1
        old = self._folder / f"a.log.{self.rotations}"
        if self.rotations % 2 or not self._copies:
            self._path.rename(old)
        else:
            shutil.copyfile(self._path, old)
            os.truncate(self._path, 0)


def _agent(folder: Path, channel: str) -> subprocess.Popen[bytes]:
    (folder / "started").unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.agent.programs.follow", str(folder), channel]
    with (folder / "errors").open("ab") as errors:
        return subprocess.Popen(command, cwd=_REPOSITORY, stderr=errors)


def _found(folder: Path) -> Counter[bytes]:
    """The numbers of the lines that were delivered."""
    return Counter(
        line.split()[1]
        for path in (folder / "out").iterdir()
        if not path.name.startswith(".")
        for line in path.read_bytes().splitlines()
    )


@pytest.mark.parametrize(
    ("channel", "copies", "kills"),
    [("file", False, _KILLS), ("file", True, _KILLS // 2), ("memory", True, _KILLS // 3)],
)
def test_no_line_is_lost_and_none_is_twice_in_a_file_channel(
    tmp_path: Path, channel: str, copies: bool, kills: int
) -> None:
    """kill -9 of the agent: whatever was written is delivered, and no line is in two batches of a file channel, however
    files are rotated.
    """
    seed = random.randrange(1 << 30) if _KILLS > 6 else 13
    chance = random.Random(seed)
    for name in ("logs", "out"):
        (tmp_path / name).mkdir()
    with Log(tmp_path / "logs", seed, copies=copies) as log:
        for _ in range(kills):
            agent = _agent(tmp_path, channel)
            try:
                eventually((tmp_path / "started").exists, "the agent's start")
                threading.Event().wait(chance.uniform(0, 0.6))
            finally:
                agent.kill()
                agent.wait()
        agent = _agent(tmp_path, channel)
        try:
            eventually((tmp_path / "started").exists, "the agent's start")
            log.end()
            wanted = {b"%09d" % number for number in range(log.count)}
            eventually(lambda: wanted <= _found(tmp_path).keys(), "the delivery of each line")
            threading.Event().wait(_COPY_SETTLE if _SOAK else 0)
        finally:
            agent.terminate()
            agent.wait()
    found = _found(tmp_path)
    twice = {line: count for line, count in found.items() if count > 1}
    print(f"{channel}: seed {seed}, {kills} kills, {log.rotations} rotations, {log.count} lines, {len(twice)} twice")
    assert found.keys() == wanted
    assert log.rotations
    if channel == "file":
        assert not twice
