"""A process with idempotent streams and a file channel is killed with SIGKILL: the server has each record once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from producer.server import LogHubServer
from producer.server.faults import delay, drop_answer

from .exact_program import STREAMS

#: ``make soak`` runs many more rounds.
ROUNDS = 200 if os.environ.get("PRODUCER_SOAK") else 4
#: Each program starts at the next multiple of this number.
_STEP = 1_000_000


@pytest.fixture
def server() -> Iterator[LogHubServer]:
    with LogHubServer(shards=1) as running:
        yield running


class Program:
    """The sending program, and its output."""

    def __init__(
        self, server: LogHubServer, directory: Path, mode: str, first: int, count: int, more: Mapping[str, str] = {}
    ) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE", "COV_"))}
        environment |= {
            "LOGHUB_ENDPOINT": server.endpoint,
            "LOGHUB_ACCESS_KEY_ID": server.access_key_id,
            "LOGHUB_ACCESS_KEY_SECRET": server.access_key_secret,
            **more,
        }
        command = [sys.executable, "-m", "tests.durable.exact_program", str(directory), mode, str(first), str(count)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
        self.numbers: list[int] = []

    def line(self) -> str:
        """Return the next line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the program has ended"
        if line.strip().isdecimal():
            self.numbers.append(int(line))
        return line.strip()

    def kill(self) -> None:
        """Send SIGKILL, and read the remaining output."""
        self.process.kill()
        self.rest()

    def rest(self) -> int:
        """Read the remaining output, and wait for the end; return the exit code."""
        out, _ = self.process.communicate(timeout=90)
        lines = out.split("\n")[:-1]  # the kill may cut the last line
        self.numbers += [int(line) for line in lines if line.isdecimal()]
        return self.process.returncode


def arrived(server: LogHubServer, mode: str) -> list[list[int]]:
    """Return the numbers on the server by stream, in the order of arrival."""
    found: list[list[int]] = [[] for _ in range(STREAMS)]
    for log in server.logs("my-project", mode):
        found[int(log.topic)].append(int(dict(log.contents)["n"]))
    return found


@pytest.mark.parametrize("mode", ["idempotent", "plain"])
def test_a_kill_between_the_answer_and_the_commit(server: LogHubServer, tmp_path: Path, mode: str) -> None:
    """A delivered but unacknowledged record is stored once with an idempotent stream, otherwise twice."""
    victim = Program(server, tmp_path / "channel", mode, 0, 60, {"BLOCK_ACKS": "1"})
    while victim.line() != "answered":
        pass
    victim.kill()
    assert sum(map(len, arrived(server, mode))), "nothing was stored: the test cannot tell"
    assert Program(server, tmp_path / "channel", mode, _STEP, 10).rest() == 0
    numbers = sorted(number for stream in arrived(server, mode) for number in stream)
    sent = [*range(60), *range(_STEP, _STEP + 10)]
    assert set(victim.numbers) <= set(numbers)
    if mode == "idempotent":
        assert numbers == [number for number in sent if number in numbers]
        assert arrived(server, mode) == [sorted(stream) for stream in arrived(server, mode)]
    else:
        assert len(numbers) > len(set(numbers))


@pytest.mark.timeout(3600 if ROUNDS > 100 else 120)
def test_with_late_and_lost_responses_and_kills_at_any_moment_no_record_is_missing(
    server: LogHubServer, tmp_path: Path
) -> None:
    """With late and lost responses and kills at any moment, no record is missing, repeated or out of order."""
    dice = random.Random(11)
    server.faults.add(delay(0.01, stored=True), probability=0.5, seed=1)
    server.faults.add(drop_answer(), probability=0.1, seed=2)
    stored: set[int] = set()
    for turn in range(ROUNDS):
        program = Program(server, tmp_path / "channel", "idempotent", turn * _STEP, 0)
        program.line()
        time.sleep(dice.uniform(0, 0.4))  # the instant of the kill, not a wait
        program.kill()
        stored.update(program.numbers)
    server.faults.clear()
    last = Program(server, tmp_path / "channel", "idempotent", ROUNDS * _STEP, 10)
    assert last.rest() == 0
    found = arrived(server, "idempotent")
    assert stored | set(last.numbers) <= {number for stream in found for number in stream}
    for stream in found:
        assert stream == sorted(set(stream))
    refused = [request for request in server.requests if request.status == 400]
    assert refused, "no batch was sent again after it was stored: the loop proves nothing"
