"""Run programs of ``programs/`` as child processes; environment variables name the server."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from producer.server import LogHubServer

PROGRAMS = Path(__file__).parent / "programs"
PROJECT = "my-project"
LOGSTORE = "app-log"


@dataclass(frozen=True)
class Ended:
    """A process that has ended, ``at`` a time of the monotonic clock in seconds."""

    returncode: int
    stdout: str
    stderr: str
    at: float

    @property
    def exit_seconds(self) -> float:
        """Return the seconds from the printed ``exits_at=`` (monotonic milliseconds) to the end."""
        return self.at - self.number("exits_at") / 1000

    @property
    def words(self) -> list[str]:
        lines = self.stdout.splitlines()
        assert lines, f"nothing was printed; stderr: {self.stderr}"
        return lines[-1].split()

    def number(self, name: str) -> int:
        """Return the number after ``name=`` in the output."""
        for word in self.stdout.split():
            if word.startswith(f"{name}="):
                return int(word.partition("=")[2])
        raise AssertionError(f"no {name}= in {self.stdout!r}; on stderr: {self.stderr}")


def environment_for(endpoint: str, server: LogHubServer | None = None) -> dict[str, str]:
    """Return the environment of a child that sends to ``endpoint``."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE_PROCESS", "COV_"))}
    return variables | {
        "LOGHUB_ENDPOINT": endpoint,
        "LOGHUB_ACCESS_KEY_ID": server.access_key_id if server else "id",
        "LOGHUB_ACCESS_KEY_SECRET": server.access_key_secret if server else "secret",
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore::DeprecationWarning",
    }


class Child:
    def __init__(
        self,
        program: str | Path,
        *arguments: object,
        environment: dict[str, str],
        python: str = sys.executable,
    ) -> None:
        command = [python, str(PROGRAMS / program), *map(str, arguments)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )

    def wait_for(self, line: str) -> None:
        """Wait until the program has printed ``line``."""
        assert self.process.stdout is not None
        for printed in self.process.stdout:
            if printed.strip() == line:
                return
        raise AssertionError(f"it ended without saying {line!r}: {self.end(5).stderr}")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended_within(self, seconds: float) -> bool:
        """Wait for the end; return True if the process has ended in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.returncode is not None

    def end(self, timeout: float = 240) -> Ended:
        try:
            stdout, stderr = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            stdout, stderr = self.process.communicate()
            raise AssertionError(f"it did not end within {timeout} s:\n{stdout}\n{stderr}") from None
        return Ended(self.process.returncode, stdout, stderr, time.monotonic())


def messages(server: LogHubServer) -> list[str]:
    """Return the field ``n`` of every record in the server, sorted."""
    return sorted(str(log.fields["n"]) for log in server.logs(PROJECT, LOGSTORE))


def numbered(prefix: str, count: int) -> list[str]:
    """Return the result of :func:`messages` if each of ``count`` records was stored exactly once."""
    return sorted(f"{prefix}-{number}" for number in range(count))


def until(condition: Callable[[], object], *, seconds: float = 20, what: str = "") -> None:
    deadline = time.monotonic() + seconds
    pause = iter(_pauses())
    while not condition():
        assert time.monotonic() < deadline, what or f"{condition} did not hold within {seconds} s"
        time.sleep(next(pause))


def _pauses() -> Iterable[float]:
    pause = 0.002
    while True:
        yield pause
        pause = min(pause * 1.5, 0.05)
