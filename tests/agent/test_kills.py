"""Agents killed at random instants while lines are written and files rotated."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .killing import KILLS, SOAK, TIMEOUT, Log, numbers_in, program, seed_for, soon

#: Seconds after which a copy counts as a separate file.
_COPY_SETTLE = 4.0
pytestmark = pytest.mark.timeout(TIMEOUT)


@contextmanager
def _started(folder: Path, channel: str) -> Iterator[None]:
    """Run the agent of ``programs/follow.py``, and yield once it follows."""
    (folder / "started").unlink(missing_ok=True)
    with program("tests.agent.programs.follow", str(folder), channel):
        soon((folder / "started").exists, "the agent's start")
        yield


@pytest.mark.parametrize(
    ("channel", "copies", "kills"),
    [("file", False, KILLS), ("file", True, KILLS // 2), ("memory", True, KILLS // 3), ("spillable", True, KILLS // 3)],
)
def test_after_kill_9_each_line_is_in_one_batch_of_the_file_channel(
    tmp_path: Path, channel: str, copies: bool, kills: int
) -> None:
    """After kill -9 all written lines are delivered through rotations, each in one batch of a file channel."""
    seed, out = seed_for(13), tmp_path / "out"
    chance = random.Random(seed)
    out.mkdir()
    with Log(tmp_path / "logs/a.log", seed, copies=copies) as log:
        for _ in range(kills):
            with _started(tmp_path, channel):
                threading.Event().wait(chance.uniform(0, 0.6))
        with _started(tmp_path, channel):
            wanted = log.end()
            soon(lambda: wanted <= numbers_in(out).keys(), "the delivery of each line")
            threading.Event().wait(_COPY_SETTLE if SOAK else 0)
    found = numbers_in(out)
    print(f"{channel}: seed {seed}, {kills} kills, {log.rotations} rotations, {log.count} lines")
    assert found.keys() == wanted
    assert log.rotations
    if channel == "file":
        assert found == Counter(wanted)
