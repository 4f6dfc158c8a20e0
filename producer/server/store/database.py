"""The SQLite database, owned by one thread; other threads submit jobs to it.

Jobs that wait together run in one transaction and are answered after its commit. So concurrent writers share the cost
of durable commits (group commit), and no reader sees data that might be rolled back. A job that fails undoes its own
writes and fails alone. Only a failure of the transaction itself (a full disk, a refused commit) fails all its jobs.

A database in a file uses a write-ahead log that is synced at every commit (``synchronous=FULL``), so answered writes
survive a crash of the process or the machine.

In a forked child the connection is a copy, without locks, of files that the parent still writes. Closing or freeing it
would fold the log into the database and remove it. So a child never does either.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from ...runtime.forks import Stage, hold_while_it_lives, keep_for_ever, watch_fork
from ...runtime.locks import Lock, RLock
from ...text.plural import counted
from ..errors import ApiError, ForkedServerError, ServerStartError
from .ownership import in_use, unusable

P = ParamSpec("P")
T = TypeVar("T")

_logger = logging.getLogger("loghub.server")

#: Maximum number of jobs in one transaction, so that the first of them is answered soon.
_MAX_JOBS_PER_COMMIT = 64

#: Seconds between two log lines about requests refused because the disk is full.
_INTERVAL = 60.0

_Job = tuple[Callable[[sqlite3.Connection], Any], "Future[Any]"]


class _FullDisk:
    """Logs of requests refused because the disk is full: the first at once, then their number once a minute."""

    def __init__(self) -> None:
        self._unreported = 0
        self._reported_at = -math.inf

    def count(self, requests: int, reason: str) -> None:
        """Count refused requests, and log them if the last log line is old enough."""
        self._unreported += requests
        now = time.monotonic()
        if now - self._reported_at >= _INTERVAL:
            refused = counted(self._unreported, "request was refused", "requests were refused")
            _logger.error("%s: %s", refused, reason)
            self._unreported, self._reported_at = 0, now


class Database:
    """The database and its thread."""

    def __init__(
        self,
        path: Path | None,
        prepare: Callable[[sqlite3.Connection], object],
        check_owned: Callable[[], object] = lambda: None,
    ) -> None:
        """Open the database.

        :param path: the file, or None for memory.
        :param prepare: creates its tables, or upgrades them.
        :param check_owned: raises if the file is no longer the server's; called before each transaction.
        :raises ServerStartError: the file cannot be used.
        """
        self._connection = _open(path, prepare)
        self._check_owned = check_owned
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        # Guards _closed, and that no job follows the None that ends the thread.
        self._lock = Lock()
        self._closed = False
        self._is_copy = False
        self._full = _FullDisk()
        self._using = RLock()  # held during calls of SQLite
        hold_while_it_lives(self._using)
        watch_fork(self, Stage.LOCKS)
        self._thread = threading.Thread(target=self._loop, name="loghub-server-store", daemon=True)
        self._thread.start()

    def submit(
        self, job: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Run ``job`` on the database's thread in a transaction; the future completes after the commit.

        :param job: the job; its first argument is the connection.
        :raises RuntimeError: the database is closed.
        :raises ForkedServerError: this is a copy in a forked child.
        """
        if self._is_copy:
            raise ForkedServerError
        future: Future[T] = Future()
        # Cancelling the future has no effect from here on: the commit happens without the caller.
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._closed:
                raise RuntimeError("the embedded LogHub is closed, and its store with it: read before close()")
            self._jobs.put((lambda connection: job(connection, *args, **kwargs), future))
        return future

    def close(self) -> None:
        """Finish the submitted jobs and close the connection. A second call, or a forked child's, does nothing."""
        if self._is_copy:
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        self._thread.join()

    def _renew_in_child(self) -> None:
        """Never close the connection, whose files are the parent's."""
        self._is_copy = True
        keep_for_ever(self._connection)

    def _loop(self) -> None:
        more = True
        while more:
            jobs, more = self._wait_for_jobs()
            if jobs:
                self._run_together(jobs)
        with self._using:
            self._connection.close()

    def _wait_for_jobs(self) -> tuple[list[_Job], bool]:
        """Return the waiting jobs, at least one, and whether others can follow."""
        jobs: list[_Job] = []
        item = self._jobs.get()
        while item is not None:
            jobs.append(item)
            if len(jobs) == _MAX_JOBS_PER_COMMIT or self._jobs.empty():
                return jobs, True
            item = self._jobs.get()
        return jobs, False

    def _run_together(self, jobs: list[_Job]) -> None:
        try:
            answers = self._answers(jobs)
        except BaseException as error:  # noqa: BLE001 - every job of the transaction gets it
            failure = self._refusal(error, len(jobs))
            for _, future in jobs:
                future.set_exception(failure)
            return
        for future, (result, refusal) in answers:
            if refusal is None:
                future.set_result(result)
            else:
                future.set_exception(self._refusal(refusal, 1))

    def _answers(self, jobs: Sequence[_Job]) -> list[tuple[Future[Any], tuple[Any, Exception | None]]]:
        """Run jobs in one transaction; return the result or the error of each."""
        connection = self._connection
        with self._using:
            try:
                self._check_owned()
                connection.execute("BEGIN IMMEDIATE")
                answers = [(future, _run(job, connection)) for job, future in jobs]
                connection.execute("COMMIT")
            except BaseException:
                _undo(connection)
                raise
            return answers

    def _refusal(self, error: BaseException, jobs: int) -> BaseException:
        """Return the error to raise: for a full disk one that names the remedy, since it passes."""
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_FULL:
            return error
        message = f"the store's disk is full ({error}): nothing was stored; free space, then send again"
        self._full.count(jobs, message)
        refusal = ApiError("InternalServerError", message)
        refusal.__cause__ = error
        return refusal


def _run(job: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection) -> tuple[T | None, Exception | None]:
    """Return the result of ``job``, or its error after undoing its writes."""
    connection.execute("SAVEPOINT job")
    try:
        result = job(connection)
    except Exception as failure:
        # After some errors SQLite has rolled back the whole transaction, including the writes of earlier jobs.
        if not connection.in_transaction:
            raise
        connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")
        return None, failure
    connection.execute("RELEASE job")
    return result, None


def _undo(connection: sqlite3.Connection) -> None:
    # If the rollback fails (a broken disk), the next BEGIN fails, and its caller gets the error.
    with contextlib.suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _open(path: Path | None, prepare: Callable[[sqlite3.Connection], object]) -> sqlite3.Connection:
    try:
        # No implicit transactions: this module begins and ends them.
        connection = sqlite3.connect(
            str(path) if path else ":memory:", isolation_level=None, check_same_thread=False, timeout=0.5
        )
    except sqlite3.Error as error:
        raise _not_opened(path, error) from error
    try:
        _own(connection)
        prepare(connection)
    except sqlite3.Error as error:
        connection.close()
        raise _not_opened(path, error) from error
    except ServerStartError as error:
        connection.close()
        raise ServerStartError(f"the data in {path} cannot be used: {error}") from error
    return connection


def _own(connection: sqlite3.Connection) -> None:
    # Exclusive, to keep out other programs, too, such as a shell on the same file.
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _not_opened(path: Path | None, error: sqlite3.Error) -> ServerStartError:
    return in_use(path) if "locked" in str(error) else unusable(path, error)
