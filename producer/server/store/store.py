"""The store: projects, logstores, LogGroups, and the last sequence number of each idempotent stream.

Every method returns a future, which fails with :class:`ApiError` (``ProjectNotExist``, ``LogStoreNotExist``, …). A
LogGroup is one row: one lz4 block, with facts that let a search skip it. Logs are decoded when they are read. ``now``
is the server's time, Unix seconds; logs that have expired by then are invisible.

This file is long because it has one method for each question that an operation asks.
"""

from __future__ import annotations

import itertools
import sqlite3
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ...text.names import CREATED_BY_A_WRITE
from ..errors import ApiError
from . import catalog
from .catalog import logstore_of, with_shard
from .consumer_groups import ConsumerGroups
from .database import Database
from .expiry import advance_sequence, remove_expired
from .indexes import Indexes
from .log_groups import CheckedGroup
from .ownership import own
from .positions import end_position, first_since, received_last
from .rows import Logstore, LogstoreSize, PackedGroup, Page, Place, Project, Route, Search
from .schema import prepare
from .shards import Shard, merge_shard, shard_in_turn, shard_of_key, shards_of, split_shard
from .sizes import count_in, count_of, sizes_of

#: Maximum number of rows that one step of a search scans, of all logstores; and maximum raw bytes that it returns (but
#: at least one row). The database serves other requests between steps, and the searcher holds the rows.
_ROWS_PER_STEP = 20_000
_BYTES_PER_STEP = 4 * 1024 * 1024
_GROUPS_PER_STEP = 10

_GROUP_COLUMNS = "id, shard, position, received, raw_size, logs, packed"
_READ_SHARD = (
    f"SELECT {_GROUP_COLUMNS} FROM log_groups"
    " WHERE logstore = ? AND shard = ? AND position >= ? AND position < ? AND received >= ? ORDER BY position LIMIT ?"
)
_MATCHING = (
    "FROM log_groups WHERE logstore = :logstore AND id > :after AND id <= :until AND received >= :horizon"
    " AND max_time >= :begin AND min_time < :end AND (:topic IS NULL OR topic = :topic)"
)
_SEARCH = (
    f"SELECT {_GROUP_COLUMNS} {_MATCHING} AND (:across IS NULL OR min_time / :across != max_time / :across"
    " OR min_time < :begin OR max_time >= :end) ORDER BY id"
)
_COUNT = (
    f"SELECT min_time / :step, SUM(logs) {_MATCHING} AND min_time / :step = max_time / :step"
    " AND min_time >= :begin AND max_time < :end GROUP BY 1"
)


class Store:
    """The server's data, in memory or in a file.

    :ivar consumer_groups: the consumer groups of its logstores.
    :ivar indexes: the index configurations of its logstores.
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
        self.consumer_groups = ConsumerGroups(self._database)
        self.indexes = Indexes(self._database)
        self._shards = shards
        self._auto_create = auto_create
        self._sequence_keys = sequence_keys
        # Used on the database's thread only.
        self._turn = itertools.count()

    def close(self) -> None:
        """Finish the submitted jobs, close the file, and release the directory."""
        self._database.close()
        self._release()

    def create_project(self, name: str, description: str, now: float) -> Future[None]:
        """Create a project. Fails with ``ProjectAlreadyExist``."""

        def job(connection: sqlite3.Connection) -> None:
            if catalog.has_project(connection, name):
                raise ApiError("ProjectAlreadyExist", f"project {name} already exists")
            catalog.insert_project(connection, name, description, now)

        return self._database.submit(job)

    def project(self, name: str) -> Future[Project]:
        """Return the project."""
        return self._database.submit(lambda connection: catalog.project_of(connection, name))

    def projects(self, part: str, offset: int, size: int) -> Future[tuple[int, list[Project]]]:
        """Return the number of projects with ``part`` in their names, and a sorted page of them."""
        return self._database.submit(lambda connection: catalog.list_projects(connection, part, offset, size))

    def update_project(self, name: str, description: str, now: float) -> Future[None]:
        """Change a project's description."""
        return self._database.submit(lambda connection: catalog.update_project(connection, name, description, now))

    def delete_project(self, name: str) -> Future[None]:
        """Delete a project with all its logstores."""
        return self._database.submit(lambda connection: catalog.delete_project(connection, name))

    def create_logstore(self, place: Place, settings: dict[str, Any], now: float) -> Future[None]:
        """Create a logstore with ``settings["shardCount"]`` shards, if given. Fails with ``LogStoreAlreadyExist``."""

        def job(connection: sqlite3.Connection) -> None:
            if not self._auto_create and not catalog.has_project(connection, place.project):
                raise catalog.no_project(place.project)
            if catalog.find_logstore(connection, place) is not None:
                raise ApiError("LogStoreAlreadyExist", f"logstore {place.logstore} already exists in {place.project}")
            self._insert_logstore(connection, place, settings, now)

        return self._database.submit(job)

    def update_logstore(self, place: Place, settings: dict[str, Any], now: float) -> Future[None]:
        """Change the given settings of a logstore."""
        return self._database.submit(lambda connection: catalog.update_logstore(connection, place, settings, now))

    def delete_logstore(self, place: Place) -> Future[None]:
        """Delete a logstore with all its data."""
        return self._database.submit(lambda connection: catalog.delete_logstore(connection, place))

    def clear_logstore(self, place: Place) -> Future[None]:
        """Delete the logs of a logstore; positions continue as after an expiry."""
        return self._database.submit(lambda connection: catalog.clear_logstore(connection, place))

    def logstore(self, place: Place) -> Future[Logstore]:
        """Return the logstore."""
        return self._database.submit(lambda connection: logstore_of(connection, place))

    def shards(self, place: Place) -> Future[list[Shard]]:
        """Return the shards of a logstore."""

        def job(connection: sqlite3.Connection) -> list[Shard]:
            try:
                return shards_of(connection, logstore_of(connection, place).row)
            except ApiError as error:
                raise self._missing(error) from error

        return self._database.submit(job)

    def split_shard(self, place: Place, shard: int, where: str | int, now: float) -> Future[list[Shard]]:
        """Split a shard at a key, or into ``where`` equal parts; return it and the new shards."""
        return self._database.submit(
            lambda connection: split_shard(connection, logstore_of(connection, place).row, shard, where, now)
        )

    def merge_shard(self, place: Place, shard: int, now: float) -> Future[list[Shard]]:
        """Merge a shard with the next one; return the new shard, and the two."""
        return self._database.submit(
            lambda connection: merge_shard(connection, logstore_of(connection, place).row, shard, now)
        )

    def logstore_names(
        self, project: str, part: str, kind: str, offset: int, size: int
    ) -> Future[tuple[int, list[str]]]:
        """Return the number of a project's logstores with ``part`` in their names, and a sorted page of the names.

        :param kind: their ``telemetryType``, ``None`` for those without; empty for all.
        """

        def job(connection: sqlite3.Connection) -> tuple[int, list[str]]:
            if not catalog.has_project(connection, project):
                raise self._missing(catalog.no_project(project))
            matching = (
                "FROM logstores WHERE project = ? AND instr(name, ?)"
                " AND ? IN ('', COALESCE(NULLIF(settings ->> 'telemetryType', ''), 'None'))"
            )
            (total,) = connection.execute(f"SELECT COUNT(*) {matching}", (project, part, kind)).fetchone()
            page = f"SELECT name {matching} ORDER BY name LIMIT ? OFFSET ?"
            return total, [name for (name,) in connection.execute(page, (project, part, kind, size, offset))]

        return self._database.submit(job)

    def append(self, place: Place, groups: list[CheckedGroup], route: Route | None, now: float) -> Future[int]:
        """Store ``groups``, all or none, in one shard, and return the shard.

        Fails with ``InvalidSequenceId`` if the route's sequence number is not above the last one of its key.
        """

        def job(connection: sqlite3.Connection) -> int:
            logstore = self._logstore_to_write(connection, place, now)
            if route is None:
                shard = shard_in_turn(connection, logstore.row, next(self._turn) % logstore.shard_count)
            else:
                shard = shard_of_key(connection, logstore.row, route.key)
                advance_sequence(connection, logstore, route, now, self._sequence_keys)
            remove_expired(connection, logstore, len(groups), now)
            _insert_groups(connection, logstore, shard, groups, now)
            return shard

        return self._database.submit(job)

    def end_position(self, place: Place, shard: int) -> Future[int]:
        """Return the position of a shard's next LogGroup."""
        return self._database.submit(
            lambda connection: end_position(connection, with_shard(connection, place, shard), shard)
        )

    def position_since(self, place: Place, shard: int, time: float, now: float) -> Future[int]:
        """Return the position of the first LogGroup received at ``time`` (Unix seconds) or later."""

        def job(connection: sqlite3.Connection) -> int:
            logstore = with_shard(connection, place, shard)
            return first_since(connection, logstore, shard, max(time, logstore.horizon(now)))

        return self._database.submit(job)

    def received_at(self, place: Place, shard: int, position: int, now: float) -> Future[float | None]:
        """Return when the LogGroup at ``position`` was received, Unix seconds; None if there is none."""

        def job(connection: sqlite3.Connection) -> float | None:
            logstore = with_shard(connection, place, shard)
            query = (
                "SELECT received FROM log_groups WHERE logstore = ? AND shard = ? AND position = ? AND received >= ?"
            )
            values = (logstore.row, shard, position, logstore.horizon(now))
            row = connection.execute(query, values).fetchone()
            return None if row is None else float(row[0])

        return self._database.submit(job)

    def read_shard(
        self, place: Place, shard: int, positions: range, now: float, *, limit: int, max_raw_bytes: int
    ) -> Future[list[PackedGroup]]:
        """Return up to ``limit`` LogGroups of a shard at ``positions``, in order.

        They have at most ``max_raw_bytes`` together, but there is at least one.
        """

        def job(connection: sqlite3.Connection) -> list[PackedGroup]:
            logstore = with_shard(connection, place, shard)
            values = (logstore.row, shard, positions.start, positions.stop, logstore.horizon(now), limit)
            return _take(connection.execute(_READ_SHARD, values), max_raw_bytes)[0]

        return self._database.submit(job)

    def last_row(self, place: Place) -> Future[int]:
        """Return the last row to arrive, of any logstore; fails if ``place`` does not exist."""

        def job(connection: sqlite3.Connection) -> int:
            logstore_of(connection, place)
            (last,) = connection.execute("SELECT MAX(id) FROM log_groups").fetchone()
            return last or 0

        return self._database.submit(job)

    def search(self, place: Place, search: Search, after: int, until: int, now: float) -> Future[Page]:
        """Return the next LogGroups that may match, in order of arrival, after row ``after`` up to row ``until``.

        A page may be empty although another follows.
        """

        def job(connection: sqlite3.Connection) -> Page:
            step = min(until, after + _ROWS_PER_STEP)
            values = _values(logstore_of(connection, place), search, (after, step), now)
            groups, whole = _take(connection.execute(_SEARCH, values), _BYTES_PER_STEP)
            seen = step if whole else groups[-1].row
            return Page(groups=groups, after=seen if seen < until else None)

        return self._database.submit(job)

    def search_back(self, place: Place, search: Search, before: int, now: float) -> Future[Page]:
        """Return the LogGroups below row ``before`` that may match, the last to arrive first.

        The page's ``after`` is the next ``before``.
        """

        def job(connection: sqlite3.Connection) -> Page:
            step = max(0, before - 1 - _ROWS_PER_STEP)
            values = _values(logstore_of(connection, place), search, (step, before - 1), now)
            groups, whole = _take(connection.execute(f"{_SEARCH} DESC", values), _BYTES_PER_STEP)
            seen = step + 1 if whole else groups[-1].row
            return Page(groups=groups, after=seen if seen > 1 else None)

        return self._database.submit(job)

    def counts(
        self, place: Place, search: Search, step: int, rows: tuple[int, int], now: float
    ) -> Future[dict[int, int]]:
        """Return the number of logs in each part of ``step`` seconds, by the part's number.

        Only LogGroups after the first of ``rows`` up to the second are counted, and of these only the ones whose logs
        are all in the same part and within the search's times.
        """

        def job(connection: sqlite3.Connection) -> dict[int, int]:
            values = _values(logstore_of(connection, place), search, rows, now) | {"step": step}
            return dict(connection.execute(_COUNT, values).fetchall())

        return self._database.submit(job)

    def group(self, place: Place, row: int, now: float) -> Future[PackedGroup | None]:
        """Return the LogGroup of a row, or None if it has expired."""

        def job(connection: sqlite3.Connection) -> PackedGroup | None:
            logstore = logstore_of(connection, place)
            query = f"SELECT {_GROUP_COLUMNS} FROM log_groups WHERE id = ? AND logstore = ? AND received >= ?"
            found = connection.execute(query, (row, logstore.row, logstore.horizon(now))).fetchone()
            return None if found is None else _packed_group(found)

        return self._database.submit(job)

    def group_at(self, place: Place, shard: int, position: int, now: float) -> Future[PackedGroup | None]:
        """Return the LogGroup at a position, or None if it has expired."""

        def job(connection: sqlite3.Connection) -> PackedGroup | None:
            logstore = with_shard(connection, place, shard)
            values = (logstore.row, shard, position, position + 1, logstore.horizon(now), 1)
            return next(iter(_take(connection.execute(_READ_SHARD, values), 0)[0]), None)

        return self._database.submit(job)

    def next_in_context(
        self, place: Place, group: PackedGroup, backward: bool, now: float
    ) -> Future[list[PackedGroup]]:
        """Return some LogGroups of the same sender after ``group``, or before it, the nearest first.

        Empty for a LogGroup without a pack id.
        """

        def job(connection: sqlite3.Connection) -> list[PackedGroup]:
            logstore = logstore_of(connection, place)
            sign, order = ("<", "DESC") if backward else (">", "ASC")
            query = (
                f"SELECT {_GROUP_COLUMNS} FROM log_groups WHERE logstore = ?"
                " AND context = (SELECT context FROM log_groups WHERE id = ?)"
                f" AND (pack, id) {sign} (SELECT pack, id FROM log_groups WHERE id = ?) AND received >= ?"
                f" ORDER BY pack {order}, id {order} LIMIT ?"
            )
            values = (logstore.row, group.row, group.row, logstore.horizon(now), _GROUPS_PER_STEP)
            return _take(connection.execute(query, values), _BYTES_PER_STEP)[0]

        return self._database.submit(job)

    def sizes(self, now: float, lately: float) -> Future[list[LogstoreSize]]:
        """Return the size of every logstore; logs received since ``lately`` (Unix seconds) are recent."""
        return self._database.submit(lambda connection: sizes_of(connection, now, lately))

    def count(self, place: Place, now: float) -> Future[int]:
        """Return the number of logs in a logstore."""

        def job(connection: sqlite3.Connection) -> int:
            return count_of(connection, logstore_of(connection, place), now)

        return self._database.submit(job)

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

    def _logstore_to_write(self, connection: sqlite3.Connection, place: Place, now: float) -> Logstore:
        if self._auto_create and catalog.find_logstore(connection, place) is None:
            self._insert_logstore(connection, place, {}, now)
        return logstore_of(connection, place)

    def _insert_logstore(
        self, connection: sqlite3.Connection, place: Place, settings: dict[str, Any], now: float
    ) -> None:
        shards = settings.get("shardCount", self._shards)
        catalog.insert_logstore(connection, place, settings, shards, now)


def _insert_groups(
    connection: sqlite3.Connection, logstore: Logstore, shard: int, groups: list[CheckedGroup], now: float
) -> None:
    first = end_position(connection, logstore, shard)
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


def _values(logstore: Logstore, search: Search, rows: tuple[int, int], now: float) -> dict[str, Any]:
    return {
        "logstore": logstore.row,
        "after": rows[0],
        "until": rows[1],
        "horizon": logstore.horizon(now),
        "begin": search.begin,
        "end": search.end,
        "topic": search.topic,
        "across": search.across,
    }


def _take(cursor: sqlite3.Cursor, max_raw_bytes: int) -> tuple[list[PackedGroup], bool]:
    """Return rows of ``cursor`` up to the limit of bytes, but at least one, and True if there are no more."""
    taken: list[PackedGroup] = []
    total = 0
    for row in cursor:
        group = _packed_group(row)
        total += group.raw_size
        if taken and total > max_raw_bytes:
            cursor.close()
            return taken, False
        taken.append(group)
    return taken, True


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
