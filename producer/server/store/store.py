"""The store: projects, logstores, LogGroups, and the last sequence number of each idempotent stream.

Its jobs are functions of the database's connection: those of :mod:`.catalog`, :mod:`.reading`, :mod:`.sizes`,
:mod:`.shards`, :mod:`.indexes` and :mod:`.consumer_groups`, and the methods of :class:`Store` that take a connection.
They raise :class:`ApiError` (``ProjectNotExist``, ``LogStoreNotExist``, …). A LogGroup is one row: one lz4 block, with
facts that let a search skip it. Logs are decoded when they are read. ``now`` is the server's time, Unix seconds.
"""

from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path
from typing import Any

from ...text.names import CREATED_BY_A_WRITE
from ..errors import ApiError
from . import catalog
from .catalog import logstore_of
from .database import Database
from .expiry import advance_sequence, remove_expired
from .log_groups import CheckedGroup
from .ownership import own
from .positions import received_last
from .rows import Logstore, Place, Route
from .schema import prepare
from .shards import Shard, find_shard, shard_in_turn, shard_of_key, shards_of
from .sizes import count_in


class Store:
    """The server's data, in memory or in a file.

    :ivar submit: runs a job, and returns a future of its answer (:meth:`Database.submit`).
    """

    def __init__(self, directory: Path | None, *, shards: int, auto_create: bool, sequence_keys: int) -> None:
        """Open the store.

        :param directory: the directory of ``loghub.sqlite3``; None for memory.
        :param shards: default number of shards of a logstore.
        :param auto_create: True if a first write creates a logstore and its project.
        :param sequence_keys: number of keys of a logstore whose sequence numbers are remembered.
        :raises ServerStartError: the directory cannot be used, or another server uses it.
        """
        self._ownership = own(directory) if directory else None
        try:
            path = directory / "loghub.sqlite3" if directory else None
            self._database = Database(path, prepare, self._check_owned)
        except BaseException:
            self._release()
            raise
        self.submit = self._database.submit
        self._shards = shards
        self._auto_create = auto_create
        self._sequence_keys = sequence_keys
        # Used on the database's thread only.
        self._turn = itertools.count()

    def close(self) -> None:
        """Finish the submitted jobs, close the file, and release the directory."""
        self._database.close()
        self._release()

    def create_logstore(
        self, connection: sqlite3.Connection, place: Place, settings: dict[str, Any], now: float
    ) -> None:
        """Create a logstore with ``settings["shardCount"]`` shards, if given.

        :raises ApiError: ``LogStoreAlreadyExist``.
        """
        if not self._auto_create and not catalog.has_project(connection, place.project):
            raise catalog.no_project(place.project)
        if catalog.find_logstore(connection, place) is not None:
            raise ApiError("LogStoreAlreadyExist", f"logstore {place.logstore} already exists in {place.project}")
        self._insert_logstore(connection, place, settings, now)

    def shards(self, connection: sqlite3.Connection, place: Place) -> list[Shard]:
        """Return the shards of a logstore."""
        try:
            return shards_of(connection, logstore_of(connection, place).row)
        except ApiError as error:
            raise self._missing(error) from error

    def logstore_names(
        self, connection: sqlite3.Connection, project: str, part: str, kind: str, offset: int, size: int
    ) -> tuple[int, list[str]]:
        """Return the number of a project's logstores with ``part`` in their names, and a sorted page of the names.

        :param kind: their ``telemetryType``, ``None`` for those without; empty for all.
        """
        if not catalog.has_project(connection, project):
            raise self._missing(catalog.no_project(project))
        matching = (
            "FROM logstores WHERE project = ? AND instr(name, ?)"
            " AND ? IN ('', COALESCE(NULLIF(settings ->> 'telemetryType', ''), 'None'))"
        )
        (total,) = connection.execute(f"SELECT COUNT(*) {matching}", (project, part, kind)).fetchone()
        page = f"SELECT name {matching} ORDER BY name LIMIT ? OFFSET ?"
        return total, [name for (name,) in connection.execute(page, (project, part, kind, size, offset))]

    def append(
        self, connection: sqlite3.Connection, place: Place, groups: list[CheckedGroup], route: Route | None, now: float
    ) -> None:
        """Store ``groups``, all or none, in one shard.

        :raises ApiError: ``InvalidSequenceId``, the route's sequence number is not above the last one of its key.
        """
        if self._auto_create and catalog.find_logstore(connection, place) is None:
            self._insert_logstore(connection, place, {}, now)
        logstore = logstore_of(connection, place)
        if route is None:
            shard = shard_in_turn(connection, logstore.row, next(self._turn) % logstore.shard_count)
        else:
            shard = shard_of_key(connection, logstore.row, route.key)
            advance_sequence(connection, logstore, route, now, self._sequence_keys)
        remove_expired(connection, logstore, len(groups), now)
        _insert_groups(connection, logstore, shard, groups, now)

    def _check_owned(self) -> None:
        """Check that the data directory is still the server's.

        :raises ApiError: the directory, or the lock in it, was removed or replaced.
        """
        lost = None if self._ownership is None else self._ownership.lost()
        if lost is not None:
            raise ApiError(
                "InternalServerError",
                f"{lost} was removed or replaced: another server may use the data; nothing was stored; stop that one, "
                "then restart this one",
            )

    def _release(self) -> None:
        if self._ownership is not None:
            self._ownership.release()

    def _missing(self, error: ApiError) -> ApiError:
        """Return the refusal of a read of missing data; it says so if a first write creates it."""
        return ApiError(error.code, f"{error.message}: {CREATED_BY_A_WRITE}") if self._auto_create else error

    def _insert_logstore(
        self, connection: sqlite3.Connection, place: Place, settings: dict[str, Any], now: float
    ) -> None:
        shards = settings.get("shardCount", self._shards)
        catalog.insert_logstore(connection, place, settings, shards, now)


def _insert_groups(
    connection: sqlite3.Connection, logstore: Logstore, shard: int, groups: list[CheckedGroup], now: float
) -> None:
    first = find_shard(connection, logstore.row, shard).next
    received = max(now, received_last(connection, logstore, shard))
    update = "UPDATE shards SET next = ? WHERE logstore = ? AND shard = ?"
    connection.execute(update, (first + len(groups), logstore.row, shard))
    count_in(connection, logstore, (shard, first), groups, received)
    connection.executemany(
        "INSERT INTO log_groups"
        " (logstore, shard, position, received, raw_size, logs, topic, min_time, max_time, packed, context, pack)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                *(logstore.row, shard, position, received, group.raw_size),
                *(group.count, group.topic, group.min_time, group.max_time, group.packed),
                *(group.context, group.pack),
            )
            for position, group in enumerate(groups, first)
        ],
    )
