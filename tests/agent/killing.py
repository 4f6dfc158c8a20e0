"""Run agents as processes and kill them, feed them lines, and count the lines that arrived.

``PRODUCER_SOAK=1`` kills more often; by hand: ``KILLS=20 pytest tests/agent/test_kills.py``.
"""

import os
import random
import re
import shutil
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from producer.server import LogHubServer

from ..support.waiting import eventually

SOAK = os.environ.get("PRODUCER_SOAK") == "1"
KILLS = int(os.environ.get("KILLS", "50" if SOAK else "6"))
#: Timeouts in seconds, longer than other tests', since so many kills take long.
TIMEOUT, _PATIENCE = (7200 if KILLS > 6 else 300), 120.0
_REPOSITORY = Path(__file__).parents[2]
_NUMBER = re.compile(rb"\d{9}")


def seed_for(fixed: int) -> int:
    """Return and print a random seed if there are many kills, otherwise the fixed one."""
    seed = random.randrange(1 << 30) if KILLS > 6 else fixed
    print(f"seed {seed}")
    return seed


@contextmanager
def agent(config: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the agent program, and kill it at the end."""
    with program("producer", "agent", "--config", str(config), *arguments) as process:
        yield process


@contextmanager
def program(module: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module as a program, and kill it at the end."""
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], cwd=_REPOSITORY)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def soon(condition: Callable[[], object], what: str) -> None:
    """Wait as ``eventually`` does, with pauses and a timeout for many kills at a time."""
    eventually(lambda: condition() or threading.Event().wait(0.05), what, _PATIENCE)


def numbered(number: int) -> bytes:
    """Return a line with a number of nine digits and some further text."""
    return b"line %09d %s\n" % (number, b"x" * (number % 90))


class Writing(ABC):
    """A thread that writes numbered lines until it is stopped."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.count = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._live)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> set[bytes]:
        self._end.set()
        self._thread.join()
        return {b"%09d" % number for number in range(self.count)}

    @abstractmethod
    def _pause(self) -> float:
        """Return the seconds before the next lines."""

    @abstractmethod
    def _write(self, numbers: range) -> None:
        """Write the lines of these numbers."""

    def _live(self) -> None:
        while not self._end.wait(self._pause()):
            numbers = range(self.count, self.count + self._random.randrange(1, 60))
            self._write(numbers)
            self.count = numbers.stop


class Log(Writing):
    """A file that grows, and is rotated by renaming, and alternately by copying and truncating if requested."""

    def __init__(
        self,
        path: Path,
        seed: int,
        *,
        rotates: bool = True,
        copies: bool = False,
        line: Callable[[int], bytes] = numbered,
    ) -> None:
        super().__init__(seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._line = path, line
        self._rotates, self._copies = rotates, copies
        self.rotations = 0

    def _pause(self) -> float:
        return self._random.uniform(0, 0.02)

    def _write(self, numbers: range) -> None:
        text = b"".join(map(self._line, numbers))
        half = self._random.randrange(len(text))
        with self._path.open("ab", buffering=0) as file:
            file.write(text[:half])  # so that a reader may see half a line
            file.write(text[half:])
        if self._rotates and self._random.random() < 0.08:
            self._rotate()

    def _rotate(self) -> None:
        self.rotations += 1
        old = self._path.with_name(f"{self._path.name}.{self.rotations}")
        if self.rotations % 2 or not self._copies:
            self._path.rename(old)
        else:
            shutil.copyfile(self._path, old)
            os.truncate(self._path, 0)


class Spool(Writing):
    """A directory of files, each of which appears complete."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(seed)
        folder.mkdir()
        self._folder = folder
        self.files = 0

    def _pause(self) -> float:
        return self._random.uniform(0, 0.1)

    def _write(self, numbers: range) -> None:
        hidden = self._folder / ".part"
        hidden.write_bytes(b"".join(map(numbered, numbers)))
        hidden.rename(self._folder / f"{self.files:06d}")
        self.files += 1


def deliver_with_kills(
    config: Path,
    writing: Writing,
    found: Callable[[], Counter[bytes]],
    chance: random.Random,
    is_over: Callable[[], object] = lambda: True,
) -> None:
    """Kill the agent after deliveries, and check that each line arrives exactly once.

    :param found: counts the numbers that arrived.
    :param is_over: a further condition to wait for at the end.
    """
    for _ in range(KILLS):
        before = found().total()
        with agent(config):
            soon(lambda: found().total() > before, "a delivery")
            threading.Event().wait(chance.uniform(0, 0.3))
    with agent(config):
        wanted = writing.end()
        soon(lambda: wanted <= found().keys(), "the delivery of each line")
        soon(is_over, "the end")
    print(f"{KILLS} kills, {writing.count} lines")
    assert found() == Counter(wanted)


def numbers_in(folder: Path) -> Counter[bytes]:
    """Count each number in the files of a folder, hidden files' complete lines included."""
    found: Counter[bytes] = Counter()
    for path in folder.iterdir() if folder.exists() else ():
        try:
            text = path.read_bytes()
        except FileNotFoundError:  # the file was just renamed
            continue
        found.update(map(_number_of, text[: text.rfind(b"\n") + 1].splitlines()))
    return found


def numbers_stored(server: LogHubServer, project: str, logstore: str) -> Counter[bytes]:
    """Count each number in the logs of a logstore."""
    return Counter(_number_of(str(log.fields["content"]).encode()) for log in server.logs(project, logstore))


def _number_of(line: bytes) -> bytes:
    found = _NUMBER.search(line)
    assert found, f"a line without a number: {line!r}"
    return found[0]
