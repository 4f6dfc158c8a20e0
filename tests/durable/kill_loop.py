"""A kill loop: a durable producer in a process of its own is killed at random instants, again and again.

Every number that the program has printed was stored, so it has to be on the server at the end. The server may be killed
and restarted as well.
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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from producer.channels import FileChannel
from producer.durable.event_format import read_event
from producer.server import LogHubServer
from producer.server.faults import answer, delay, drop_answer
from tests.support.log_group_schema import contents_of

from .kill_program import BATCH, STREAMS

__all__ = ["BATCH", "IN_FLIGHT", "Outcome", "kill_loop", "kill_loop_under_faults"]

ACCESS_KEY = "loop-id", "loop-secret"
#: The most duplicates of one kill: the records that the memory of the program holds.
IN_FLIGHT = 200_000 // 320


class Served:
    """``producer serve`` in a process of its own, which can be killed and restarted on the same data."""

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
        except urllib.error.HTTPError as answer:
            answer.close()
            return True
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """Send SIGKILL, and wait."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def numbers(self) -> dict[int, list[int]]:
        """Return the stored numbers by stream, in the order of arrival; the process must not run."""
        with LogHubServer(data=self.data) as server:
            return _numbers_of(server)


@dataclass
class Outcome:
    """The observations of a loop.

    :ivar stored: numbers that the program had printed.
    :ivar arrived: numbers on the server, by stream, in order.
    :ivar refused_alone: numbers of records that were refused in a request of their own, which no split can help.
    :ivar buried: numbers in the dead letters.
    :ivar kills: how often the program was killed.
    :ivar recoveries: rounds that found records of the round before.
    :ivar untold: how often a stream stopped because the fate of a batch was unknown.
    """

    stored: set[int] = field(default_factory=set)
    arrived: dict[int, list[int]] = field(default_factory=dict)
    refused_alone: set[int] = field(default_factory=set)
    buried: list[int] = field(default_factory=list)
    kills: int = 0
    recoveries: int = 0
    untold: int = 0

    @property
    def counts(self) -> Counter[int]:
        return Counter(number for numbers in self.arrived.values() for number in numbers)

    @property
    def missing(self) -> set[int]:
        return self.stored - self.counts.keys() - set(self.buried)

    @property
    def duplicates(self) -> int:
        return sum(count - 1 for count in self.counts.values())


class Faulty:
    """A server in this process with random faults: it refuses requests with 413, stores others without an answer, and
    is slow.
    """

    def __init__(self, seed: int, refuse: float) -> None:
        self._server = LogHubServer(access_keys=dict([ACCESS_KEY]), shards=1).start()
        faults = self._server.faults
        faults.add(delay(0.01, stored=True), probability=0.5, seed=seed, operation="PutLogs")
        too_large = answer(413, "PostBodyTooLarge")
        self._refused = faults.add(too_large, probability=refuse, seed=seed + 1, operation="PutLogs")
        self._unanswered = faults.add(drop_answer(), probability=0.2, seed=seed + 2, operation="PutLogs")
        self.endpoint = self._server.endpoint

    @property
    def refused(self) -> int:
        """Requests that were answered 413."""
        return self._refused.fired

    @property
    def unanswered(self) -> int:
        """Requests that were stored, and not answered."""
        return self._unanswered.fired

    def calm(self) -> None:
        """Answer everything from now on."""
        self._server.faults.clear()

    def start(self) -> None:
        """Do nothing: it already runs."""

    def kill(self) -> None:
        """End."""
        self._server.stop()

    def numbers(self) -> dict[int, list[int]]:
        """End, and return the stored numbers by stream, in the order of arrival."""
        found = _numbers_of(self._server)
        self._server.close()
        return found


def _numbers_of(server: LogHubServer) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {stream: [] for stream in range(STREAMS)}
    for group in server.log_groups("my-project", "app-log"):
        for log in group.logs:
            found[int(group.topic)].append(int(dict(log.contents)["n"]))
    return found


def numbers_in(directory: Path) -> list[int]:
    """Return the numbers in the events of a file channel, which stay there."""
    found: list[int] = []
    with FileChannel(directory, minimum_free_space=0) as channel, channel.transaction() as transaction:
        while events := transaction.take(1000, timeout=0):
            for event in events:
                found += [int(log[0][1]) for log in contents_of(read_event(event).record)]
        transaction.rollback()
    return found


class _Program:
    """The sending program, and a thread that reads its output.

    :param more: further environment variables.
    """

    def __init__(
        self, directory: Path, server: Served | Faulty, first: int, count: int, more: Mapping[str, str] = {}
    ) -> None:
        environment = (
            os.environ
            | more
            | {
                "LOGHUB_ENDPOINT": server.endpoint,
                "LOGHUB_ACCESS_KEY_ID": ACCESS_KEY[0],
                "LOGHUB_ACCESS_KEY_SECRET": ACCESS_KEY[1],
            }
        )
        environment = {name: value for name, value in environment.items() if not name.startswith(("COVERAGE", "COV_"))}
        command = [sys.executable, "-m", "tests.durable.kill_program", str(directory), str(first), str(count)]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed in end()
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._errors, env=environment, text=True
        )
        self.numbers: list[int] = []
        self.said: dict[str, int] = {}
        self.sends = threading.Event()
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
                    self.sends.set()

    def kill(self) -> None:
        """Send SIGKILL, and wait."""
        self.process.send_signal(signal.SIGKILL)
        self.end()

    def end(self, timeout: float = 90) -> str:
        """Wait for its end; return its output on stderr."""
        try:
            self.process.wait(timeout)
        finally:
            self.process.kill()
            self.process.wait()
        self._reader.join(timeout)
        self._errors.seek(0)
        errors = self._errors.read()
        self._errors.close()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return errors


def kill_loop_under_faults(
    directory: Path,
    rounds: int,
    *,
    seed: int,
    idempotent: bool = False,
    dead_letters: bool = False,
    channel: str = "commit",
) -> tuple[Outcome, Faulty]:
    """Run ``rounds`` rounds against a faulty server, then let one program deliver the rest to a working one."""
    dice, outcome, first = random.Random(seed), Outcome(), 0
    # An idempotent stream stops at each record that is refused alone.
    server = Faulty(seed, refuse=0.1 if idempotent else 0.25)
    letters, witness = directory / "letters", directory / "refused"
    environment = {"REFUSED_ALONE": str(witness), "CHANNEL": channel}
    environment |= {"DEAD_LETTERS": str(letters)} if dead_letters else {}
    environment |= {"IDEMPOTENT": "1"} if idempotent else {}
    try:
        for _ in range(rounds):
            program = _Program(directory / "channel", server, first, 0, environment)
            assert program.sends.wait(60), "the program sends nothing"
            time.sleep(dice.uniform(0, 0.7))  # the instant of the kill, not a wait
            program.kill()
            outcome.kills += 1
            outcome.stored.update(program.numbers)
            outcome.recoveries += program.said.get("recovered", 0) > 0
            outcome.untold += program.said.get("untold", 0)
            first = max(outcome.stored, default=-1) + 1000
        server.calm()
        last = _Program(directory / "channel", server, first, 10, environment)
        errors = last.end()
        assert last.process.returncode == 0, errors
        assert last.said["stored"] == 0, errors
        outcome.untold += last.said.get("untold", 0)
        outcome.stored.update(last.numbers)
    finally:
        server.kill()
    outcome.arrived = server.numbers()
    outcome.refused_alone = set(map(int, witness.read_text().split())) if witness.exists() else set()
    outcome.buried = numbers_in(letters) if dead_letters else []
    return outcome, server


def kill_loop(
    directory: Path, rounds: int, *, seed: int, kill_client: bool = True, kill_server: bool = False
) -> Outcome:
    """Run ``rounds`` rounds, then let one program deliver the rest."""
    dice, outcome, first = random.Random(seed), Outcome(), 0
    server = Served(directory / "server")
    try:
        for _ in range(rounds):
            program = _Program(directory / "channel", server, first, 0)
            if dice.random() < 0.7:  # otherwise the kill may come while it starts, and recovers
                assert program.sends.wait(60), "the program sends nothing"
            time.sleep(dice.uniform(0, 0.8))  # the instant of the kill, not a wait
            if kill_server:
                server.kill()
                time.sleep(dice.uniform(0, 0.3))
            if kill_client:
                program.kill()
                outcome.kills += 1
            if kill_server:
                server.start()
            if not kill_client:
                time.sleep(dice.uniform(0, 0.3))
                program.kill()
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
