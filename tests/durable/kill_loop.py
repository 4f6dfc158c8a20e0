"""A real kill loop: a durable producer in a process of its own, killed at a random instant, again and again.

Every number that the program has printed was stored, so it has to be on the server at the end; the server may be
killed and started again as well.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from producer.server import LogHubServer

from .kill_program import STREAMS

ACCESS_KEY = "loop-id", "loop-secret"
#: What one kill may leave in doubt: the records that the memory of the program holds at most.
IN_FLIGHT = 200_000 // 320


class Served:
    """``producer serve`` in a process of its own, which can be killed and started again on the same data."""

    def __init__(self, data: Path) -> None:
        self.data = data
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "producer", "serve", "--port", str(self.port), "--data", str(self.data)]
        keys = ["--access-key-id", ACCESS_KEY[0], "--access-key-secret", ACCESS_KEY[1]]
        self.process = subprocess.Popen([*command, *keys], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not self._answers():
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self.endpoint, timeout=1).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL, and wait."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def numbers(self) -> dict[int, list[int]]:
        """What is stored, by stream, in the order of arrival; the process must not run."""
        found: dict[int, list[int]] = {stream: [] for stream in range(STREAMS)}
        with LogHubServer(data=self.data) as server:
            for group in server.log_groups("my-project", "app-log"):
                for log in group.logs:
                    found[int(group.topic)].append(int(dict(log.contents)["n"]))
        return found


@dataclass
class Outcome:
    """What a loop saw.

    :ivar stored: numbers that the program had printed.
    :ivar arrived: what is on the server, by stream, in order.
    :ivar kills: of the program.
    :ivar recoveries: rounds that found something of the round before.
    """

    stored: set[int] = field(default_factory=set)
    arrived: dict[int, list[int]] = field(default_factory=dict)
    kills: int = 0
    recoveries: int = 0

    @property
    def counts(self) -> Counter[int]:
        return Counter(number for numbers in self.arrived.values() for number in numbers)

    @property
    def missing(self) -> set[int]:
        return self.stored - self.counts.keys()

    @property
    def duplicates(self) -> int:
        return sum(count - 1 for count in self.counts.values())


class _Program:
    """The sending program, and a thread that reads what it prints."""

    def __init__(self, directory: Path, server: Served, first: int, count: int) -> None:
        environment = os.environ | {
            "LOGHUB_ENDPOINT": server.endpoint,
            "LOGHUB_ACCESS_KEY_ID": ACCESS_KEY[0],
            "LOGHUB_ACCESS_KEY_SECRET": ACCESS_KEY[1],
        }
        environment = {name: value for name, value in environment.items() if not name.startswith(("COVERAGE", "COV_"))}
        command = [sys.executable, "-m", "tests.durable.kill_program", str(directory), str(first), str(count)]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed in end()
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._errors, env=environment, text=True
        )
        self.numbers: list[int] = []
        self.said: dict[str, int] = {}
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):
                return  # cut by the kill
            for word in line.split():
                name, equals, value = word.partition("=")
                if equals:
                    self.said[name] = int(value)
                else:
                    self.numbers.append(int(word))

    def end(self, timeout: float = 90) -> str:
        """Wait for its end; what it said on stderr."""
        self.process.wait(timeout)
        self._reader.join(timeout)
        self._errors.seek(0)
        errors = self._errors.read()
        self._errors.close()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return errors


def kill_loop(
    directory: Path, rounds: int, *, seed: int, kill_client: bool = True, kill_server: bool = False
) -> Outcome:
    """Run ``rounds`` rounds, then let one program deliver what is left."""
    dice, outcome, first = random.Random(seed), Outcome(), 0
    server = Served(directory / "server")
    try:
        for _ in range(rounds):
            program = _Program(directory / "channel", server, first, 0)
            time.sleep(dice.uniform(0.3, 1.3))  # the instant of the kill, not a wait for anything
            if kill_server:
                server.kill()
                time.sleep(dice.uniform(0, 0.3))
            if kill_client:
                program.process.send_signal(signal.SIGKILL)
                program.end()
                outcome.kills += 1
            if kill_server:
                server.start()
            if not kill_client:
                time.sleep(dice.uniform(0, 0.3))
                program.process.send_signal(signal.SIGKILL)
                program.end()
                outcome.kills += 1
            outcome.stored.update(program.numbers)
            outcome.recoveries += program.said.get("recovered", 0) > 0
            first = max(outcome.stored, default=-1) + 1000
        last = _Program(directory / "channel", server, first, 10)
        errors = last.end()
        assert last.process.returncode == 0, errors
        assert last.said["stored"] == 0
        outcome.stored.update(last.numbers)
    finally:
        server.kill()
    outcome.arrived = server.numbers()
    return outcome
