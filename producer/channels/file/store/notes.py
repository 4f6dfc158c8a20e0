"""FileNotes: short values by name, stored beside the events of a file channel; on the disk when a call returns.

They are in ``notes.db``, an SQLite database that is created by the first write. Its table has a row for each name: the
value, and the sequence number of the newest event that the value refers to. After a crash of the machine the next
opening may find that event lost. It then removes the row, because a new event will get the same number. The random
``identity`` of the database distinguishes its rows from those of another directory.

An unreadable database is moved to ``quarantine/``, and a new one is begun.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from ....model.errors import ChannelClosedError, ChannelIOError
from ....runtime.forks import Stage, hold_while_it_lives, keep_for_ever, watch_fork
from ....runtime.locks import RLock
from ....runtime.loggers import get_logger

_log = get_logger("loghub.channel")
_T = TypeVar("_T")

NOTES_NAME = "notes.db"
#: Suffixes of SQLite's files beside it.
COMPANIONS = ("-wal", "-shm", "-journal")
#: ``newest`` of a row that came from another channel, whose numbers mean nothing here.
_ELSEWHERE = -1

_SCHEMA = """
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value BLOB NOT NULL, newest INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS identity (id TEXT NOT NULL);
"""


class FileNotes:
    """Notes of one channel, by name, in SQLite. Implements :class:`~producer.model.interfaces.Notes`; thread-safe.

    :param directory: the channel's directory.
    :param name: the channel's name, for messages.
    """

    def __init__(self, directory: str, name: str) -> None:
        self._directory, self._name = Path(directory), name
        self._path = self._directory / NOTES_NAME
        # Guards the fields below; held during I/O, because SQLite allows one writer at a time.
        self._lock = RLock()
        hold_while_it_lives(self._lock)
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        watch_fork(self, Stage.CHANNELS)

    @property
    def identity(self) -> str | None:
        """Return the 16 hexadecimal digits that identify this database; None if there is none yet."""
        return self._do(_identity, make=False)

    def make_identity(self) -> str:
        """Return the ``identity``; create the database if there is none.

        :raises ChannelIOError: it cannot be created.
        """
        return str(self._do(_identity, make=True))

    def read(self, name: str) -> bytes | None:
        def job(connection: sqlite3.Connection) -> bytes | None:
            row = connection.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
            return None if row is None else bytes(row[0])

        return self._do(job, make=False)

    def write(self, name: str, value: bytes, newest: int) -> None:
        def job(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (name, value, newest))

        self._do(job, make=True)

    def write_many(self, rows: Iterable[tuple[str, bytes, int]]) -> None:
        listed = list(rows)

        def job(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", listed)

        if listed:
            self._do(job, make=True)

    def items(self, prefix: str) -> dict[str, bytes]:
        def job(connection: sqlite3.Connection) -> dict[str, bytes]:
            having = "SELECT name, value FROM notes WHERE substr(name, 1, ?) = ?"
            rows = connection.execute(having, (len(prefix), prefix))
            return {name: bytes(value) for name, value in rows}

        return self._do(job, make=False) or {}

    def remove(self, name: str) -> None:
        self._do(lambda connection: connection.execute("DELETE FROM notes WHERE name = ?", (name,)), make=False)

    def prune(self, most: int, keep: Iterable[str]) -> None:
        kept = list(keep)

        def job(connection: sqlite3.Connection) -> None:
            (count,) = connection.execute("SELECT COUNT(*) FROM notes").fetchone()
            connection.execute("CREATE TEMP TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY)")
            connection.execute("DELETE FROM kept")
            connection.executemany("INSERT OR IGNORE INTO kept VALUES (?)", [(name,) for name in kept])
            # A rewritten row gets a new rowid, so the lowest ones are the longest unused.
            old = "SELECT rowid FROM notes WHERE name NOT IN (SELECT name FROM kept) ORDER BY rowid LIMIT ?"
            connection.execute(f"DELETE FROM notes WHERE rowid IN ({old})", (max(0, count - most),))  # noqa: S608  # a constant

        self._do(job, make=False)

    def forget_lost(self, next_sequence: int) -> None:
        """Remove notes that refer to lost events; called when the channel is opened."""

        def job(connection: sqlite3.Connection) -> int:
            return connection.execute("DELETE FROM notes WHERE newest >= ?", (next_sequence,)).rowcount

        lost = self._do(job, make=False)
        if lost:
            _log.warning(
                "channel %s: its newest events are lost (the machine crashed, or the disk is damaged), and %d notes "
                "about them are removed: idempotent streams may send their last records again, under new keys, and an "
                "agent's sources read their last input again",
                self._name,
                lost,
            )

    def adopt(self, orphan: FileNotes) -> str | None:
        """Move the rows of a dead process's channel here, with ``@`` and its identity added to their names.

        Later rows of the orphan get another identity.

        :returns: the orphan's identity; None if it has no rows.
        """
        found = orphan._do(_everything, make=False)
        if found is None:
            return None
        identity, rows = found
        # Rows adopted before keep their names.
        renamed = [(name if "@" in name else f"{name}@{identity}", value, _ELSEWHERE) for name, value in rows]

        def job(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", renamed)

        self._do(job, make=True)
        orphan._do(_begin_anew, make=False)
        return identity

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            connection, self._connection, self._closed = self._connection, None, True
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()

    def _renew_in_child(self) -> None:
        """Never close the connection, whose files are the parent's: closing would remove its newest notes."""
        self._lock, self._closed = RLock(), True
        if self._connection is not None:
            keep_for_ever(self._connection)
            self._connection = None

    def _do(self, job: Callable[[sqlite3.Connection], _T], *, make: bool) -> _T | None:
        """Run ``job`` in a transaction; None if there is no database and ``make`` is False.

        :raises ChannelClosedError: after :meth:`close`.
        :raises ChannelIOError: the disk failed or is full.
        """
        with self._lock:
            if self._closed:
                raise ChannelClosedError(self._name, "it was closed: its notes cannot be used")
            try:
                connection = self._open(make=make)
                if connection is None:
                    return None
                with connection:  # commits, or rolls back
                    return job(connection)
            except (sqlite3.Error, OSError) as error:
                raise ChannelIOError(self._name, f"{self._path} {_words_of(error)}") from error

    def _open(self, *, make: bool) -> sqlite3.Connection | None:
        if self._connection is None:
            if not self._path.exists():
                if not make:
                    return None
                os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            try:
                self._connection = self._connect()
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError as error:  # damaged, or not a database
                self._put_aside(error)
                self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, check_same_thread=False)
        try:
            connection.executescript(_SCHEMA)
            if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("it is damaged")
            with connection:
                _identity(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _put_aside(self, error: sqlite3.DatabaseError) -> None:
        quarantine = self._directory / "quarantine"
        quarantine.mkdir(exist_ok=True)
        unique = secrets.token_hex(4)
        for suffix in ("", *COMPANIONS):
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{self._path}{suffix}", quarantine / f"{NOTES_NAME}{suffix}.{unique}")
        _log.error(
            "channel %s: %s cannot be read (%s): it is moved to %s. Idempotent streams continue with new keys, so "
            "their last records may be stored twice; an agent's source with these notes reads everything again",
            self._name,
            self._path,
            error,
            quarantine,
        )
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def copy_notes(directory: Path, place: Path) -> None:
    """Copy a database to another directory: opening the original may change it, or fail while it is in use."""
    for suffix in ("", *COMPANIONS):
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(directory / f"{NOTES_NAME}{suffix}", place / f"{NOTES_NAME}{suffix}")


def _words_of(error: Exception) -> str:
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:  # the low byte; the others give details
        return "is in use: the previous run has not ended yet, or another process has it open"
    return f"cannot be used: {error}: check that the disk is writable and not full"


def _identity(connection: sqlite3.Connection) -> str:
    row = connection.execute("SELECT id FROM identity").fetchone()
    if row is None:
        row = (secrets.token_hex(8),)
        connection.execute("INSERT INTO identity VALUES (?)", row)
    return str(row[0])


def _everything(connection: sqlite3.Connection) -> tuple[str, list[tuple[str, bytes]]]:
    return _identity(connection), connection.execute("SELECT name, value FROM notes").fetchall()


def _begin_anew(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM notes")
    connection.execute("DELETE FROM identity")
    _identity(connection)
