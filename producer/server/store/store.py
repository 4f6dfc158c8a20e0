"""What the server remembers: projects, logstores, LogGroups, and the last sequence number of each idempotent stream.

Every function returns a future of its answer and refuses with :class:`ApiError` (``ProjectNotExist``,
``LogStoreNotExist``, …). A LogGroup is one row, kept as one lz4 block with what a search needs to skip it; logs are
decoded when they are read.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ..errors import ApiError
from .database import Database
from .log_groups import CheckedGroup
from .rows import Logstore, PackedGroup, Place, Project, Route, Search
from .shards import shard_of_key

_SCHEMA = """
CREATE TABLE IF NOT EXISTS projects (
    name TEXT PRIMARY KEY, description TEXT NOT NULL, created REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS logstores (
    id INTEGER PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects (name),
    name TEXT NOT NULL,
    shard_count INTEGER NOT NULL,
    settings TEXT NOT NULL,
    created REAL NOT NULL,
    UNIQUE (project, name)
);
CREATE TABLE IF NOT EXISTS log_groups (
    id INTEGER PRIMARY KEY,
    logstore INTEGER NOT NULL REFERENCES logstores (id),
    shard INTEGER NOT NULL,
    position INTEGER NOT NULL,
    received REAL NOT NULL,
    raw_size INTEGER NOT NULL,
    logs INTEGER NOT NULL,
    topic TEXT NOT NULL,
    min_time INTEGER NOT NULL,
    max_time INTEGER NOT NULL,
    packed BLOB NOT NULL,
    UNIQUE (logstore, shard, position)
);
CREATE TABLE IF NOT EXISTS sequences (
    logstore INTEGER NOT NULL REFERENCES logstores (id),
    hash_key TEXT NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (logstore, hash_key)
);
"""


_GROUP_COLUMNS = "id, shard, position, received, raw_size, logs, packed"
_READ_SHARD = (
    f"SELECT {_GROUP_COLUMNS} FROM log_groups"  # noqa: S608 - a constant
    " WHERE logstore = ? AND shard = ? AND position >= ? AND position < ? ORDER BY position"
)
_SEARCH = (
    f"SELECT {_GROUP_COLUMNS} FROM log_groups"  # noqa: S608 - a constant
    " WHERE logstore = :logstore AND id > :after AND max_time >= :begin AND min_time < :end"
    " AND (:topic IS NULL OR topic = :topic) ORDER BY id LIMIT :limit"
)


class Store:
    """The server's memory, or its file."""

    def __init__(self, directory: Path | None, *, shards: int, auto_create: bool) -> None:
        """Open the store.

        :param directory: where ``loghub.sqlite3`` lies or will lie; None for memory.
        :param shards: shards of a logstore whose creator does not say.
        :param auto_create: whether a first write, or a first look at its shards, creates a logstore and its project.
        :raises ServerStartError: the directory cannot be used.
        """
        self._database = Database(directory / "loghub.sqlite3" if directory else None, _SCHEMA)
        self._shards = shards
        self._auto_create = auto_create
        # Used on the database's thread only.
        self._turn = itertools.count()

    def close(self) -> None:
        """Finish what was handed over and close the file."""
        self._database.close()

    def create_project(self, name: str, description: str, now: float) -> Future[None]:
        """Refuses with ``ProjectAlreadyExist``."""

        def job(connection: sqlite3.Connection) -> None:
            if _has_project(connection, name):
                raise ApiError("ProjectAlreadyExist", f"project {name} exists already")
            _insert_project(connection, name, description, now)

        return self._database.submit(job)

    def project(self, name: str) -> Future[Project]:
        """The project of that name."""

        def job(connection: sqlite3.Connection) -> Project:
            query = "SELECT name, description, created FROM projects WHERE name = ?"
            row = connection.execute(query, (name,)).fetchone()
            if row is None:
                raise _no_project(name)
            return Project(name=row[0], description=row[1], created=row[2])

        return self._database.submit(job)

    def create_logstore(self, place: Place, settings: dict[str, Any], now: float) -> Future[None]:
        """``settings["shardCount"]`` shards, if given. Refuses with ``LogStoreAlreadyExist``."""

        def job(connection: sqlite3.Connection) -> None:
            if not self._auto_create and not _has_project(connection, place.project):
                raise _no_project(place.project)
            if _find_logstore(connection, place) is not None:
                raise ApiError("LogStoreAlreadyExist", f"logstore {place.logstore} exists already in {place.project}")
            self._insert_logstore(connection, place, settings, now)

        return self._database.submit(job)

    def logstore(self, place: Place) -> Future[Logstore]:
        """The logstore of that name."""
        return self._database.submit(lambda connection: _logstore(connection, place))

    def logstore_to_use(self, place: Place, now: float) -> Future[Logstore]:
        """The logstore that a client is about to use: made now if it is missing and may spring into being."""
        return self._database.submit(lambda connection: self._logstore_to_write(connection, place, now))

    def logstore_names(self, project: str) -> Future[list[str]]:
        """Names of a project's logstores, sorted."""

        def job(connection: sqlite3.Connection) -> list[str]:
            if not _has_project(connection, project):
                raise _no_project(project)
            query = "SELECT name FROM logstores WHERE project = ? ORDER BY name"
            return [name for (name,) in connection.execute(query, (project,))]

        return self._database.submit(job)

    def append(self, place: Place, groups: list[CheckedGroup], route: Route | None, now: float) -> Future[int]:
        """Keep ``groups``, all or none, in one shard; the future's answer is the shard.

        Refuses with ``InvalidSequenceId`` when the route's sequence number is not above the last one of its key.
        """

        def job(connection: sqlite3.Connection) -> int:
            logstore = self._logstore_to_write(connection, place, now)
            if route is None:
                shard = next(self._turn) % logstore.shard_count
            else:
                shard = shard_of_key(route.key, logstore.shard_count)
                _advance_sequence(connection, logstore, route)
            _insert_groups(connection, logstore, shard, groups, now)
            return shard

        return self._database.submit(job)

    def end_position(self, place: Place, shard: int) -> Future[int]:
        """The position after a shard's last LogGroup."""
        return self._database.submit(
            lambda connection: _end_position(connection, _shard_row(connection, place, shard), shard)
        )

    def position_at(self, place: Place, shard: int, time: float) -> Future[int]:
        """The position of the first LogGroup that was received at ``time`` (Unix seconds) or later."""

        def job(connection: sqlite3.Connection) -> int:
            row = _shard_row(connection, place, shard)
            query = "SELECT MIN(position) FROM log_groups WHERE logstore = ? AND shard = ? AND received >= ?"
            (position,) = connection.execute(query, (row, shard, time)).fetchone()
            return _end_position(connection, row, shard) if position is None else int(position)

        return self._database.submit(job)

    def read_shard(
        self, place: Place, shard: int, positions: range, max_raw_bytes: int | None = None
    ) -> Future[list[PackedGroup]]:
        """LogGroups of a shard at ``positions``, in order: no more than ``max_raw_bytes`` in all, but at least one."""

        def job(connection: sqlite3.Connection) -> list[PackedGroup]:
            row = _shard_row(connection, place, shard)
            cursor = connection.execute(_READ_SHARD, (row, shard, positions.start, positions.stop))
            return _take(cursor, max_raw_bytes)

        return self._database.submit(job)

    def search(self, place: Place, search: Search, after: int, limit: int) -> Future[list[PackedGroup]]:
        """Up to ``limit`` LogGroups in which ``search`` may find something, in order of arrival, from beyond row
        ``after``.
        """

        def job(connection: sqlite3.Connection) -> list[PackedGroup]:
            values = {
                "logstore": _logstore(connection, place).row,
                "after": after,
                "begin": search.begin,
                "end": search.end,
                "topic": search.topic,
                "limit": limit,
            }
            return [_packed_group(row) for row in connection.execute(_SEARCH, values)]

        return self._database.submit(job)

    def count(self, place: Place) -> Future[int]:
        """How many logs a logstore holds."""

        def job(connection: sqlite3.Connection) -> int:
            query = "SELECT COALESCE(SUM(logs), 0) FROM log_groups WHERE logstore = ?"
            return int(connection.execute(query, (_logstore(connection, place).row,)).fetchone()[0])

        return self._database.submit(job)

    def _logstore_to_write(self, connection: sqlite3.Connection, place: Place, now: float) -> Logstore:
        if self._auto_create and _find_logstore(connection, place) is None:
            self._insert_logstore(connection, place, {}, now)
        return _logstore(connection, place)

    def _insert_logstore(
        self, connection: sqlite3.Connection, place: Place, settings: dict[str, Any], now: float
    ) -> None:
        if not _has_project(connection, place.project):
            _insert_project(connection, place.project, "", now)
        shards = settings.get("shardCount", self._shards)
        connection.execute(
            "INSERT INTO logstores (project, name, shard_count, settings, created) VALUES (?, ?, ?, ?, ?)",
            (place.project, place.logstore, shards, json.dumps(settings), now),
        )


def _has_project(connection: sqlite3.Connection, name: str) -> bool:
    return connection.execute("SELECT 1 FROM projects WHERE name = ?", (name,)).fetchone() is not None


def _insert_project(connection: sqlite3.Connection, name: str, description: str, now: float) -> None:
    connection.execute("INSERT INTO projects VALUES (?, ?, ?)", (name, description, now))


def _find_logstore(connection: sqlite3.Connection, place: Place) -> Logstore | None:
    query = "SELECT id, name, shard_count, settings, created FROM logstores WHERE project = ? AND name = ?"
    row = connection.execute(query, (place.project, place.logstore)).fetchone()
    if row is None:
        return None
    return Logstore(row=row[0], name=row[1], shard_count=row[2], settings=json.loads(row[3]), created=row[4])


def _logstore(connection: sqlite3.Connection, place: Place) -> Logstore:
    logstore = _find_logstore(connection, place)
    if logstore is not None:
        return logstore
    if not _has_project(connection, place.project):
        raise _no_project(place.project)
    raise ApiError("LogStoreNotExist", f"logstore {place.logstore} does not exist in project {place.project}")


def _no_project(name: str) -> ApiError:
    return ApiError("ProjectNotExist", f"project {name} does not exist")


def _shard_row(connection: sqlite3.Connection, place: Place, shard: int) -> int:
    """The row of the logstore of ``place``, which has that shard."""
    logstore = _logstore(connection, place)
    if not 0 <= shard < logstore.shard_count:
        raise ApiError(
            "ShardNotExist", f"shard {shard} does not exist: {place.logstore} has 0 to {logstore.shard_count - 1}"
        )
    return logstore.row


def _end_position(connection: sqlite3.Connection, logstore_row: int, shard: int) -> int:
    query = "SELECT MAX(position) FROM log_groups WHERE logstore = ? AND shard = ?"
    (last,) = connection.execute(query, (logstore_row, shard)).fetchone()
    return 0 if last is None else int(last) + 1


def _advance_sequence(connection: sqlite3.Connection, logstore: Logstore, route: Route) -> None:
    if route.sequence is None:
        return
    hash_key = f"{route.key:032x}"
    query = "SELECT last FROM sequences WHERE logstore = ? AND hash_key = ?"
    row = connection.execute(query, (logstore.row, hash_key)).fetchone()
    if row is not None and route.sequence <= row[0]:
        raise ApiError(
            "InvalidSequenceId",
            f"seqid {route.sequence} of key {hash_key} is not above {row[0]}, the last accepted: nothing was stored",
        )
    connection.execute("INSERT OR REPLACE INTO sequences VALUES (?, ?, ?)", (logstore.row, hash_key, route.sequence))


def _insert_groups(
    connection: sqlite3.Connection, logstore: Logstore, shard: int, groups: list[CheckedGroup], now: float
) -> None:
    first = _end_position(connection, logstore.row, shard)
    connection.executemany(
        "INSERT INTO log_groups"
        " (logstore, shard, position, received, raw_size, logs, topic, min_time, max_time, packed)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                *(logstore.row, shard, position, now, group.raw_size),
                *(group.count, group.topic, group.min_time, group.max_time, group.packed),
            )
            for position, group in enumerate(groups, first)
        ],
    )


def _take(cursor: sqlite3.Cursor, max_raw_bytes: int | None) -> list[PackedGroup]:
    taken: list[PackedGroup] = []
    total = 0
    for row in cursor:
        group = _packed_group(row)
        total += group.raw_size
        if taken and max_raw_bytes is not None and total > max_raw_bytes:
            break
        taken.append(group)
    cursor.close()
    return taken


def _packed_group(row: tuple[Any, ...]) -> PackedGroup:
    number, shard, position, received, raw_size, logs, packed = row
    return PackedGroup(
        row=number,
        shard=shard,
        position=position,
        received=received,
        raw_size=raw_size,
        count=logs,
        packed=packed,
    )
