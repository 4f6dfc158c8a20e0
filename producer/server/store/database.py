"""One thread that owns the SQLite connection; everybody else hands it jobs.

Jobs that wait together run in one transaction and are answered together, after the commit: concurrent writers share
the cost of making their rows durable (group commit), and nobody reads what might still be rolled back. A job that
fails undoes its own writes and is told; the others of its transaction go on. Only a failure of the transaction itself
(a full disk, a commit that is refused) is given to all who were in it.

A database in a file is written ahead to a log that is synced at every commit (``synchronous=FULL``), so what was
answered is there after the process or the machine dies.

In a forked child the connection is a copy without locks of files that the parent goes on writing. To close it, or to
free it, would fold the log into the database and remove it under the parent's hands. So a child never does either.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import math
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from ...runtime.forks import Stage, watch_fork
from ...text.plural import counted
from ..errors import ApiError, ForkedServerError, ServerStartError
from .ownership import in_use, unusable

T = TypeVar("T")

_logger = logging.getLogger("loghub.server")

#: Jobs in one transaction at most, so that the first of them does not wait long for its answer.
_MAX_JOBS_PER_COMMIT = 64

#: Between two lines about requests that were refused for want of room, seconds.
_INTERVAL = 60.0

_Job = tuple[Callable[[sqlite3.Connection], Any], "Future[Any]"]


class _FullDisk:
    """Says that requests were refused for want of room: at once, and after that how many they were, once a minute."""

    def __init__(self) -> None:
        self._untold = 0
        self._told_at = -math.inf

    def refused(self, requests: int, why: str) -> None:
        """So many more were."""
        self._untold += requests
        now = time.monotonic()
        if now - self._told_at >= _INTERVAL:
            refused = counted(self._untold, "request was refused", "requests were refused")
            _logger.error("%s: %s", refused, why)
            self._untold, self._told_at = 0, now


class Database:
    """The database and its thread."""

    def __init__(
        self,
        path: Path | None,
        prepare: Callable[[sqlite3.Connection], object],
        check_owned: Callable[[], object] = lambda: None,
    ) -> None:
        """Open the database.

        :param path: a file, or None for memory.
        :param prepare: makes its tables, or what is missing of them.
        :param check_owned: raises if the file is not the server's any more; called before each transaction.
        :raises ServerStartError: the file cannot be used.
        """
        self._connection = _open(path, prepare)
        self._check_owned = check_owned
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        # Guards _closed and the order of jobs against the None that ends the thread.
        self._lock = threading.Lock()
        self._closed = False
        self._is_copy = False
        self._full = _FullDisk()
        watch_fork(self, Stage.LOCKS)
        self._thread = threading.Thread(target=self._loop, name="loghub-server-store", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Run ``job`` on the database's thread, inside a transaction; the future ends after the commit.

        :raises RuntimeError: the database is closed.
        :raises ForkedServerError: this is a copy in a forked child.
        """
        if self._is_copy:
            raise ForkedServerError
        future: Future[T] = Future()
        # From here on it cannot be cancelled: whoever stops waiting does not stop the commit.
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._closed:
                raise RuntimeError("the embedded LogHub is closed, and its store with it: read before close()")
            self._jobs.put((job, future))
        return future

    def close(self) -> None:
        """Finish the jobs handed over so far and close the connection. Calling it again does nothing, nor does a forked
        child that calls it.
        """
        if self._is_copy:
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        self._thread.join()

    def _renew_in_child(self) -> None:
        """Never use, close or free the connection in this process, not even at its end."""
        self._is_copy = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))

    def _loop(self) -> None:
        more = True
        while more:
            jobs, more = self._wait_for_jobs()
            if jobs:
                self._run_together(jobs)
        self._connection.close()

    def _wait_for_jobs(self) -> tuple[list[_Job], bool]:
        """The jobs that wait, at least one, and whether others can follow."""
        jobs: list[_Job] = []
        item = self._jobs.get()
        while item is not None:
            jobs.append(item)
            if len(jobs) == _MAX_JOBS_PER_COMMIT or self._jobs.empty():
                return jobs, True
            item = self._jobs.get()
        return jobs, False

    def _run_together(self, jobs: list[_Job]) -> None:
        connection = self._connection
        try:
            self._check_owned()
            connection.execute("BEGIN IMMEDIATE")
            answers = [(future, _run(job, connection)) for job, future in jobs]
            connection.execute("COMMIT")
        except BaseException as error:  # noqa: BLE001 - it belongs to those who wait for an answer
            _undo(connection)
            failure = self._told(error, len(jobs))
            for _, future in jobs:
                future.set_exception(failure)
            return
        for future, (result, refusal) in answers:
            if refusal is None:
                future.set_result(result)
            else:
                future.set_exception(self._told(refusal, 1))

    def _told(self, error: BaseException, jobs: int) -> BaseException:
        """``error`` as it is told; of a full disk what it means, since that passes when there is room again."""
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_FULL:
            return error
        message = (
            f"there is no room for what the server keeps ({error}): nothing was stored; make room, then send it again"
        )
        self._full.refused(jobs, message)
        refusal = ApiError("InternalServerError", message)
        refusal.__cause__ = error
        return refusal


def _run(job: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection) -> tuple[T | None, Exception | None]:
    """What ``job`` returns, or why it failed; then nothing that it wrote is left."""
    connection.execute("SAVEPOINT job")
    try:
        result = job(connection)
    except Exception as failure:
        # After some errors SQLite has undone the whole transaction, and with it what the jobs before this one wrote.
        if not connection.in_transaction:
            raise
        connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")
        return None, failure
    connection.execute("RELEASE job")
    return result, None


def _undo(connection: sqlite3.Connection) -> None:
    # A rollback that fails (a broken disk) shows again in the next BEGIN, whose caller is told.
    with contextlib.suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _open(path: Path | None, prepare: Callable[[sqlite3.Connection], object]) -> sqlite3.Connection:
    try:
        # autocommit by hand: transactions begin and end where this module says.
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
    # Exclusive: what is no server of this version (a shell on the same file) is kept out, too.
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _not_opened(path: Path | None, error: sqlite3.Error) -> ServerStartError:
    return in_use(path) if "locked" in str(error) else unusable(path, error)
