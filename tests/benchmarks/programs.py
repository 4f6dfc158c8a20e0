"""Client programs: processes that answer a line with a line; see :mod:`tests.benchmarks.clients.protocol`."""

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
#: Seconds from the start to the first line.
START = 60.0
#: Seconds that a job may take: the longest of `make bench` takes one or two minutes.
DEADLINE = 400.0
#: How much of a program's stderr an error shows, bytes.
TAIL = 2000
# A proxy would get what is for loopback; coverage.py would slow down what is timed.
_KEPT_OUT = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "coverage_process_config")


_NOTHING: Mapping[str, str] = MappingProxyType({})


class ProgramError(Exception):
    """A program died, said nonsense, or nothing in time; the message ends with what it wrote to stderr."""


class Program:
    """A process that is talked to in lines, and killed at the end of the block; ``more`` is of its environment."""

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
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()  # an empty one at the end
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            self._lines.put(line)
        self._lines.put("")

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self.failure("died") from None

    def hear(self, seconds: float) -> str:
        """Return the next line of its stdout; an end, or no line for that long, is a ProgramError."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise self.failure(f"said nothing for {seconds:g} s, its deadline") from None
        if not line:
            raise self.failure(f"ended with status {self._process.wait()}")
        return line

    def failure(self, what: str) -> ProgramError:
        """The error that says what happened, with the last of stderr."""
        end = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, end - TAIL))
        tail = self._errors.read().decode(errors="replace").strip()
        return ProgramError(f"{' '.join(self._command)}: {what}; stderr:\n{tail or '(nothing)'}")

    def close(self) -> None:
        """Kill it, unless it has ended, and wait for that."""
        self._process.kill()
        self._reader.join()
        self._process.communicate()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class ClientProgram(Program):
    """A client of the benchmark; ``with_content`` gives each job's logs and streams in a file."""

    def __init__(
        self, command: Sequence[str], *, with_content: bool = False, more: Mapping[str, str] = _NOTHING
    ) -> None:
        self._content = tempfile.TemporaryDirectory() if with_content else None
        super().__init__(command, more=more)
        try:
            self.ways: tuple[str, ...] = tuple(json.loads(self.hear(START)))
        except (ProgramError, ValueError):
            self.close()
            raise

    def run(self, job: Job, *, deadline: float = DEADLINE) -> Answer:
        """Do a job within ``deadline`` seconds; else, or if the program dies, raise ProgramError."""
        if self._content is not None:
            path = self._content_of(job, Path(self._content.name))
            job = dataclasses.replace(job, options={**job.options, "content": str(path)})
        self.say(json.dumps(dataclasses.asdict(job)))
        line = self.hear(deadline)
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
        """Kill it, and remove what was written for it."""
        super().close()
        if self._content is not None:
            self._content.cleanup()
