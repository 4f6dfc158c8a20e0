"""Agents as processes that are killed, and who gives them lines to read."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOAK = os.environ.get("PRODUCER_SOAK") == "1"
_REPOSITORY = Path(__file__).parents[2]


def seed_for(fixed: int) -> int:
    """Other histories each time when there are many."""
    return random.randrange(1 << 30) if SOAK else fixed


@contextmanager
def agent(config: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program, which is killed at the end."""
    command = [sys.executable, "-m", "producer", "agent", "--config", str(config), "--no-reload"]
    process = subprocess.Popen(command, cwd=_REPOSITORY)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Spool:
    """Puts files of numbered lines into a directory, each whole at once."""

    def __init__(self, folder: Path, seed: int) -> None:
        folder.mkdir()
        self._folder, self._random = folder, random.Random(seed)
        self.count = self.files = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Spool:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> set[bytes]:
        """Put no more; all numbers."""
        self._end.set()
        self._thread.join()
        return {b"%09d" % number for number in range(self.count)}

    def _write(self) -> None:
        while not self._end.wait(self._random.uniform(0, 0.1)):
            numbers = range(self.count, self.count + self._random.randrange(1, 200))
            hidden = self._folder / ".part"
            hidden.write_bytes(b"".join(b"line %09d %s\n" % (n, b"x" * (n % 90)) for n in numbers))
            hidden.rename(self._folder / f"{self.files:06d}")
            self.count, self.files = numbers.stop, self.files + 1


def numbers_in(folder: Path) -> Counter[bytes]:
    """How often each number stands in the files of a folder, whole lines of hidden ones included."""
    found: Counter[bytes] = Counter()
    for path in folder.iterdir():
        try:
            text = path.read_bytes()
        except FileNotFoundError:  # it got its name just now
            continue
        found.update(line.split()[1] for line in text[: text.rfind(b"\n") + 1].splitlines())
    return found
