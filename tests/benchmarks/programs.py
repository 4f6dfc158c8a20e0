"""Run client programs, which answer each line with a line; see :mod:`tests.benchmarks.clients.protocol`."""

import dataclasses
import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from .clients.protocol import Answer, Job
from .shapes import logs_of, streams_of

ROOT = Path(__file__).parents[2]
#: Maximum seconds from the start to the first line.
START = 60.0
#: Maximum seconds of a job; the longest one of `make bench` takes one or two minutes.
DEADLINE = 400.0
#: Number of the last bytes of a program's stderr that an error shows.
TAIL = 2000
# Environment variables that programs do not get: a proxy would get the requests to loopback, and coverage.py would slow
# down the timed code.
_KEPT_OUT = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "coverage_process_config")


_NOTHING: Mapping[str, str] = MappingProxyType({})


class ProgramError(Exception):
    """Raised if a program died, or its answer was invalid or late; the message ends with its stderr."""


class Program:
    """A process that exchanges lines, and is killed at the end of the block; ``more`` is added to its environment."""

    def __init__(self, command: Sequence[str], *, more: Mapping[str, str] = _NOTHING) -> None:
        kept = {name: value for name, value in os.environ.items() if name.lower() not in _KEPT_OUT}
        environment = kept | more
        self._command = command
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of the block
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
        )
        self.pid = self._process.pid
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()  # an empty line means the end
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            self._lines.put(line)
        self._lines.put("")

    def send_line(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self.failure("died") from None

    def read_line(self, seconds: float) -> str:
        """Return the next line of stdout; raise ProgramError if the program ends or prints no line in time."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise self.failure(f"printed nothing for {seconds:g} s, its deadline") from None
        if not line:
            raise self.failure(f"ended with status {self._process.wait()}")
        return line

    def failure(self, what: str) -> ProgramError:
        """Return an error with this text and the end of stderr."""
        end = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, end - TAIL))
        tail = self._errors.read().decode(errors="replace").strip()
        return ProgramError(f"{' '.join(self._command)}: {what}; stderr:\n{tail or '(nothing)'}")

    def close(self) -> None:
        """Kill the program, unless it has ended, and wait for its end."""
        self._process.kill()
        self._reader.join()
        self._process.communicate()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class ClientProgram(Program):
    """A client of the benchmark; ``with_content`` passes each job's logs and streams in a file."""

    def __init__(
        self, command: Sequence[str], *, with_content: bool = False, more: Mapping[str, str] = _NOTHING
    ) -> None:
        self._content = tempfile.TemporaryDirectory() if with_content else None
        super().__init__(command, more=more)
        try:
            self.ways: tuple[str, ...] = tuple(json.loads(self.read_line(START)))
        except (ProgramError, ValueError):
            self.close()
            raise

    def run(self, job: Job, *, deadline: float = DEADLINE) -> Answer:
        """Let the client do a job; raise ProgramError after ``deadline`` seconds, or if the program dies."""
        if self._content is not None:
            path = self._content_of(job, Path(self._content.name))
            job = dataclasses.replace(job, options={**job.options, "content": str(path)})
        self.send_line(json.dumps(dataclasses.asdict(job)))
        line = self.read_line(deadline)
        try:
            return Answer(**json.loads(line))
        except (ValueError, TypeError):
            raise self.failure(f"answered {line!r}") from None

    @staticmethod
    def _content_of(job: Job, folder: Path) -> Path:
        path = folder / f"{job.shape.replace(os.sep, '-')} {job.streams}.json"
        if not path.exists():
            path.write_text(json.dumps({"logs": logs_of(job.shape), "streams": streams_of(job.streams)}))
        return path

    def close(self) -> None:
        """Kill the program, and remove the files of its jobs."""
        super().close()
        if self._content is not None:
            self._content.cleanup()
