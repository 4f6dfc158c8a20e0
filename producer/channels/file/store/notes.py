"""FileNotes: short values beside the events of a file channel, by name; on the disk when a call returns.

They lie in ``notes.db``, a database of SQLite, which exists once something was written. Its one table has a row for
each name: the value, and the sequence number of the newest event that the value speaks of. A channel that has lost that
event when it is opened next, since the machine died before it was on the disk, numbers new events like the lost ones:
such rows are removed then. Rows are told apart from those of another directory by the ``identity`` of the database,
which is random.

A database that cannot be read is moved to ``quarantine/``, and a new one is begun.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from ....model.errors import ChannelClosedError, ChannelIOError
from ....runtime.loggers import get_logger

_log = get_logger("loghub.channel")
_T = TypeVar("_T")

NOTES_NAME = "notes.db"
#: What SQLite puts beside it.
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

# Connections of a parent, in a forked child: to close them would touch the parent's files.
_of_parents: list[sqlite3.Connection] = []


class FileNotes:
    """The notes of one channel, by name, in SQLite. Implements :class:`~producer.model.interfaces.Notes`; thread-safe.

    :param directory: the channel's.
    :param name: the channel's, for messages.
    """

    def __init__(self, directory: str, name: str) -> None:
        self._directory, self._name = Path(directory), name
        self._path = self._directory / NOTES_NAME
        # Guards what follows, and is held during I/O: one writer at a time is what SQLite allows.
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    @property
    def identity(self) -> str | None:
        """16 hexadecimal digits that name this database; None as long as there is none."""
        return self._do(_identity, make=False)

    def make_identity(self) -> str:
        """The ``identity``; the database is made if there is none.

        :raises ChannelIOError: it cannot be made.
        """
        return str(self._do(_identity, make=True))

    def read(self, name: str) -> bytes | None:
        """See :class:`~producer.model.interfaces.Notes`."""

        def job(connection: sqlite3.Connection) -> bytes | None:
            row = connection.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
            return None if row is None else bytes(row[0])

        return self._do(job, make=False)

    def write(self, name: str, value: bytes, newest: int) -> None:
        """See :class:`~producer.model.interfaces.Notes`."""

        def job(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (name, value, newest))

        self._do(job, make=True)

    def write_many(self, rows: Iterable[tuple[str, bytes, int]]) -> None:
        """See :class:`~producer.model.interfaces.Notes`."""
        listed = list(rows)

        def job(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", listed)

        if listed:
            self._do(job, make=True)

    def items(self, prefix: str) -> dict[str, bytes]:
        """See :class:`~producer.model.interfaces.Notes`."""

        def job(connection: sqlite3.Connection) -> dict[str, bytes]:
            having = "SELECT name, value FROM notes WHERE substr(name, 1, ?) = ?"
            rows = connection.execute(having, (len(prefix), prefix))
            return {name: bytes(value) for name, value in rows}

        return self._do(job, make=False) or {}

    def remove(self, name: str) -> None:
        """See :class:`~producer.model.interfaces.Notes`."""
        self._do(lambda connection: connection.execute("DELETE FROM notes WHERE name = ?", (name,)), make=False)

    def prune(self, most: int, keep: Iterable[str]) -> None:
        """See :class:`~producer.model.interfaces.Notes`."""
        kept = list(keep)

        def job(connection: sqlite3.Connection) -> None:
            (count,) = connection.execute("SELECT COUNT(*) FROM notes").fetchone()
            connection.execute("CREATE TEMP TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY)")
            connection.execute("DELETE FROM kept")
            connection.executemany("INSERT OR IGNORE INTO kept VALUES (?)", [(name,) for name in kept])
            # A row that is written again gets a new rowid: the lowest are the longest unused.
            old = "SELECT rowid FROM notes WHERE name NOT IN (SELECT name FROM kept) ORDER BY rowid LIMIT ?"
            connection.execute(f"DELETE FROM notes WHERE rowid IN ({old})", (max(0, count - most),))  # noqa: S608  # a constant

        self._do(job, make=False)

    def forget_lost(self, next_sequence: int) -> None:
        """Remove what speaks of events that the channel does not have; called when it is opened."""

        def job(connection: sqlite3.Connection) -> int:
            return connection.execute("DELETE FROM notes WHERE newest >= ?", (next_sequence,)).rowcount

        lost = self._do(job, make=False)
        if lost:
            _log.warning(
                "channel %s: its newest events are lost (the machine died, or the disk is damaged), and %d notes that "
                "spoke of them are forgotten: idempotent streams may send again what they sent last, under new keys, "
                "and the sources of an agent read again what they read last",
                self._name,
                lost,
            )

    def adopt(self, orphan: FileNotes) -> str | None:
        """Take over the rows of a channel whose process died, under names that end in ``@`` and its identity.

        They are removed there, and what is written there from now on has another identity.

        :returns: the identity; None if there is nothing to take over.
        """
        found = orphan._do(_everything, make=False)
        if found is None:
            return None
        identity, rows = found
        # What was adopted before keeps its name.
        renamed = [(name if "@" in name else f"{name}@{identity}", value, _ELSEWHERE) for name, value in rows]

        def job(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", renamed)

        self._do(job, make=True)
        orphan._do(_begin_anew, make=False)
        return identity

    def close(self) -> None:
        """Give the files up."""
        with self._lock:
            connection, self._connection, self._closed = self._connection, None, True
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()

    def close_in_child(self) -> None:
        """After a fork: the files are the parent's."""
        self._lock, self._closed = threading.Lock(), True
        if self._connection is not None:
            _of_parents.append(self._connection)
            self._connection = None

    def _do(self, job: Callable[[sqlite3.Connection], _T], *, make: bool) -> _T | None:
        """Run ``job`` in a transaction; None if there is no database, and none is to be made.

        :raises ChannelClosedError: after :meth:`close`.
        :raises ChannelIOError: the disk could not, or is full.
        """
        with self._lock:
            if self._closed:
                raise ChannelClosedError(self._name, "it was closed: nothing more can be noted")
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
            except sqlite3.DatabaseError as error:  # damaged, or no database
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
            "channel %s: %s cannot be read (%s): it is kept in %s, and idempotent streams go on with new keys, so that "
            "what they had sent last may be stored twice; an agent's source whose notes these are reads all again",
            self._name,
            self._path,
            error,
            quarantine,
        )
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def copy_notes(directory: Path, place: Path) -> None:
    """Copy a database to another directory: to open one may change it, and may not be possible while it is used."""
    for suffix in ("", *COMPANIONS):
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(directory / f"{NOTES_NAME}{suffix}", place / f"{NOTES_NAME}{suffix}")


def _words_of(error: Exception) -> str:
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:  # the low byte: others say more of it
        return "is in use: the run before has not ended yet, or another process has it open"
    return f"could not be used: {error}: is the disk full, or not writable?"


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
