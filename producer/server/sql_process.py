"""Processes that run SQL statements: started on demand, reused, and killed when a statement takes too long.

A process runs one statement at a time. A process that was killed, has died, or has grown is not reused. All of them end
with the server: its close kills them, and its death ends their input.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..runtime.locks import Lock
from ..text.plural import counted
from .errors import ApiError

_PROGRAM = Path(__file__).with_name("sql_engine")
#: Environment variables that the program needs. It gets no others: no secret, no folder of extensions.
_KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TZ", "LANG", "LC_ALL")
#: Maximum bytes of an answer per byte of its rows: it also has names, types, and the syntax of JSON.
_MAX_ANSWER_FACTOR = 4


@dataclass(frozen=True, slots=True)
class SqlResult:
    """The result of a statement: names and types of its columns, and its rows as the service writes them."""

    names: list[str]
    types: list[str]
    rows: list[dict[str, str]]


class NotTakenError(ApiError):
    """Raised when a process died before it had taken a statement. Another process may run the statement."""


class SqlProcess:
    """A process for SQL. :meth:`kill` is thread-safe; the other methods are for one thread at a time."""

    def __init__(self, memory_bytes: int) -> None:
        """Start the process.

        :param memory_bytes: approximate limit of a statement's memory besides its tables, bytes.
        :raises ApiError: ``InternalServerError``, the system starts no more processes.
        """
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        path = [str(_PROGRAM.parent), *sys.path]
        # Each arena would take 64 MiB of the bounded address space.
        environment |= {"PYTHONPATH": os.pathsep.join(filter(None, path)), "MALLOC_ARENA_MAX": "1"}
        command = [sys.executable, "-S", "-P", "-m", _PROGRAM.name, str(memory_bytes)]
        try:
            self._process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise ApiError("InternalServerError", f"cannot start a process for SQL: {error}") from error
        self._is_fit, self._is_killed, self._memory_bytes = True, False, memory_bytes

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    @property
    def is_fit(self) -> bool:
        """Return True if the process may run another statement."""
        return self._is_fit and not self._is_killed and self._process.poll() is None

    def begin(self, statement: dict[str, Any]) -> None:
        """Begin a statement; on return the process has taken it.

        :raises NotTakenError: the process had died before.
        """
        self._is_fit = False
        try:
            self._send("begin", statement)
            self._read(1)
        except ApiError as error:
            message = "the process for SQL ended before it took the statement: try again"
            raise NotTakenError("InternalServerError", message) from error

    def take_rows(self, table: int, count: int, columns: dict[str, str]) -> None:
        """Send ``count`` logs of a table, by columns."""
        self._send("rows", (table, count, columns))

    def run(self, most: int) -> SqlResult:
        """Run the statement and return its result.

        :param most: largest size of the rows in the result, bytes.
        :raises ApiError: ``ParameterInvalid``, the statement fails or takes too much.
        """
        self._send("run", None)
        size = int.from_bytes(self._read(8), "big")
        if size > _MAX_ANSWER_FACTOR * most + 1024 * 1024:
            raise ApiError(
                "ParameterInvalid", f"the result has {counted(size, 'byte')}: use a smaller LIMIT, and shorter names"
            )
        outcome = json.loads(self._read(size))
        self._is_fit = not outcome["is_worn"]
        if "refusal" in outcome:
            raise ApiError("ParameterInvalid", outcome["refusal"])
        return SqlResult(outcome["names"], outcome["types"], outcome["rows"])

    def kill(self) -> None:
        """Kill the process; a thread that waits for it gets an error."""
        self._is_killed = True
        # An ended process keeps its id until it is waited for, so the id is never another process's.
        with suppress(ProcessLookupError):
            self._process.kill()

    def close(self) -> None:
        """Kill the process, and wait for its end."""
        self.kill()
        self._process.wait()
        self._close_pipes()

    def forget(self) -> None:
        """Drop the pipes in a forked child: the process is the parent's, and must end with the parent."""
        self._close_pipes()
        self._process.returncode = 0

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _send(self, kind: str, content: object) -> None:
        pipe, data = _open(self._process.stdin), memoryview(pickle.dumps((kind, content)))
        try:
            while data:
                data = data[pipe.write(data) :]
        except OSError as error:
            raise self._died() from error

    def _read(self, size: int) -> bytes:
        pipe, parts = _open(self._process.stdout), list[bytes]()
        while size:
            part = pipe.read(min(size, 1 << 20))
            if not part:
                raise self._died()
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _died(self) -> ApiError:
        self.kill()
        code = self._process.wait()
        return ApiError("ParameterInvalid", f"the SQL cannot be run: {_end_of_process(code, self._memory_bytes)}")


class SqlProcesses:
    """All processes for SQL of one server; thread-safe."""

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        # Guards the fields below.
        self._lock = Lock()
        self._idle: list[SqlProcess] = []
        self._all: set[SqlProcess] = set()
        self._is_closed = False

    def take(self, is_new: bool = False) -> SqlProcess:
        """Return a process that no other statement uses.

        :param is_new: True for a process that has not run any statement.
        :raises ApiError: the extra is not installed, or no process can be started.
        """
        with self._lock:
            process = self._idle.pop() if self._idle and not is_new else None
        if process is not None and process.is_fit:
            return process
        if process is not None:
            self.give_back(process)
        return self._new()

    def give_back(self, process: SqlProcess) -> None:
        """Take a process back after its statement, to reuse it, or to close it if it is unfit."""
        with self._lock:
            if process.is_fit and not self._is_closed:
                self._idle.append(process)
                return
            self._all.discard(process)
        process.close()

    def close(self) -> None:
        """Kill all processes. A statement in progress fails, and gives its process back."""
        with self._lock:
            self._is_closed = True
            every, self._idle = list(self._all), []
        for process in every:
            process.kill()

    def wait(self) -> None:
        """Wait for the end of all processes; called after :meth:`close`, when none is in use."""
        with self._lock:
            every, self._all = list(self._all), set()
        for process in every:
            process.close()

    def forget(self) -> None:
        """Drop all processes in a forked child: they are the parent's."""
        for process in self._all:
            process.forget()

    def pids(self) -> list[int]:
        """Return the ids of the running processes."""
        with self._lock:
            return [process.pid for process in self._all]

    def _new(self) -> SqlProcess:
        _check_installed()
        process = SqlProcess(self._memory_bytes)
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._all.add(process)
        if is_closed:
            process.close()
            raise ApiError("InternalServerError", "the server is closing")
        return process


def _end_of_process(code: int, memory_bytes: int) -> str:
    """Describe the end of a statement's process, with its likely reason."""
    if code == -getattr(signal, "SIGXCPU", 0):
        return "it took more processor time than a search may take: narrow the query"
    if code == -getattr(signal, "SIGKILL", 0):
        return "its process was killed because the server is closing or the system is short of memory: narrow the query"
    end = f"signal {-code}" if code < 0 else f"exit {code}"
    return (
        f"its process failed ({end}), probably because it needs more than {counted(memory_bytes, 'byte')} of memory:"
        " narrow the query"
    )


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise ValueError("the process was started without that pipe")
    return pipe


def _check_installed() -> None:
    missing = [name for name in ("duckdb", "sqlglot") if importlib.util.find_spec(name) is None]
    if missing:
        from ..text.extras import how_to_install  # noqa: PLC0415  # only for this error

        message = f"SQL after '|' needs {' and '.join(missing)} where the server runs: {how_to_install('sql')}"
        raise ApiError("ParameterInvalid", message)
