"""Rows of projects and logstores: find, create, change and delete them."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from ...text.names import LOGSTORE_RULE, PROJECT_RULE, is_logstore_name, is_project_name
from ..errors import ApiError
from . import shards
from .rows import Logstore, Place, Project
from .shards import Shard, find_shard, make_shards


def no_project(name: str) -> ApiError:
    """Return the refusal of a project that does not exist."""
    return ApiError("ProjectNotExist", f"project {name} does not exist")


def has_project(connection: sqlite3.Connection, name: str) -> bool:
    """Return True if the project exists."""
    return connection.execute("SELECT 1 FROM projects WHERE name = ?", (name,)).fetchone() is not None


def project_of(connection: sqlite3.Connection, name: str) -> Project:
    """Return the project.

    :raises ApiError: ``ProjectNotExist``.
    """
    query = "SELECT name, description, created, modified FROM projects WHERE name = ?"
    row = connection.execute(query, (name,)).fetchone()
    if row is None:
        raise no_project(name)
    return Project(name=row[0], description=row[1], created=row[2], modified=row[3])


def list_projects(connection: sqlite3.Connection, part: str, offset: int, size: int) -> tuple[int, list[Project]]:
    """Return the number of projects with ``part`` in their names, and a sorted page of them."""
    matching = "FROM projects WHERE instr(name, ?)"
    (total,) = connection.execute(f"SELECT COUNT(*) {matching}", (part,)).fetchone()
    page = f"SELECT name, description, created, modified {matching} ORDER BY name LIMIT ? OFFSET ?"
    rows = connection.execute(page, (part, size, offset))
    return total, [Project(name=row[0], description=row[1], created=row[2], modified=row[3]) for row in rows]


def create_project(connection: sqlite3.Connection, name: str, description: str, now: float) -> None:
    """Create a project.

    :raises ApiError: ``ProjectAlreadyExist``, or ``ParameterInvalid``: clients could not send to a project of that
        name.
    """
    if has_project(connection, name):
        raise ApiError("ProjectAlreadyExist", f"project {name} already exists")
    _insert_project(connection, name, description, now)


def _insert_project(connection: sqlite3.Connection, name: str, description: str, now: float) -> None:
    if not is_project_name(name):
        raise ApiError("ParameterInvalid", f"project name {name[:140]!r} is invalid: it {PROJECT_RULE}")
    connection.execute("INSERT INTO projects VALUES (?, ?, ?, ?)", (name, description, now, now))


def update_project(connection: sqlite3.Connection, name: str, description: str, now: float) -> None:
    """Change a project's description.

    :raises ApiError: ``ProjectNotExist``.
    """
    update = "UPDATE projects SET description = ?, modified = ? WHERE name = ?"
    if connection.execute(update, (description, now, name)).rowcount == 0:
        raise no_project(name)


def delete_project(connection: sqlite3.Connection, name: str) -> None:
    """Delete a project with all its logstores.

    :raises ApiError: ``ProjectNotExist``.
    """
    logstores = connection.execute("SELECT id FROM logstores WHERE project = ?", (name,)).fetchall()
    for (row,) in logstores:
        _delete_logstore(connection, row)
    if connection.execute("DELETE FROM projects WHERE name = ?", (name,)).rowcount == 0:
        raise no_project(name)


def find_logstore(connection: sqlite3.Connection, place: Place) -> Logstore | None:
    """Return the logstore, or None if it does not exist."""
    query = "SELECT id, name, shard_count, settings, created, modified FROM logstores WHERE project = ? AND name = ?"
    row = connection.execute(query, (place.project, place.logstore)).fetchone()
    if row is None:
        return None
    number, name, shards, settings, created, modified = row
    return Logstore(
        row=number, name=name, shard_count=shards, settings=json.loads(settings), created=created, modified=modified
    )


def logstore_of(connection: sqlite3.Connection, place: Place) -> Logstore:
    """Return the logstore.

    :raises ApiError: ``ProjectNotExist``, ``LogStoreNotExist``.
    """
    logstore = find_logstore(connection, place)
    if logstore is not None:
        return logstore
    if not has_project(connection, place.project):
        raise no_project(place.project)
    raise ApiError("LogStoreNotExist", f"logstore {place.logstore} does not exist in project {place.project}")


def with_shard(connection: sqlite3.Connection, place: Place, shard: int) -> Logstore:
    """Return the logstore if it has that shard.

    :raises ApiError: ``ProjectNotExist``, ``LogStoreNotExist``, ``ShardNotExist``.
    """
    logstore = logstore_of(connection, place)
    find_shard(connection, logstore.row, shard)
    return logstore


def insert_logstore(
    connection: sqlite3.Connection, place: Place, settings: dict[str, Any], shards: int, now: float
) -> None:
    """Create a logstore, and its project if missing.

    :raises ApiError: ``LogStoreInfoInvalid``, ``ParameterInvalid``, clients could not send to a logstore or project of
        that name.
    """
    if not is_logstore_name(place.logstore):
        raise ApiError("LogStoreInfoInvalid", f"logstore name {place.logstore[:140]!r} is invalid: it {LOGSTORE_RULE}")
    if not has_project(connection, place.project):
        _insert_project(connection, place.project, "", now)
    row = connection.execute(
        "INSERT INTO logstores (project, name, shard_count, settings, created, modified) VALUES (?, ?, 0, ?, ?, ?)",
        (place.project, place.logstore, json.dumps(settings), now, now),
    ).lastrowid
    assert row is not None  # noqa: S101 - an INSERT that did not raise has made one
    make_shards(connection, row, shards, now)


def update_logstore(connection: sqlite3.Connection, place: Place, settings: dict[str, Any], now: float) -> None:
    """Change the given settings of a logstore.

    :raises ApiError: ``ProjectNotExist``, ``LogStoreNotExist``.
    """
    logstore = logstore_of(connection, place)
    update = "UPDATE logstores SET settings = ?, modified = ? WHERE id = ?"
    connection.execute(update, (json.dumps({**logstore.settings, **settings}), now, logstore.row))


def delete_logstore(connection: sqlite3.Connection, place: Place) -> None:
    """Delete a logstore with all its data.

    :raises ApiError: ``ProjectNotExist``, ``LogStoreNotExist``.
    """
    _delete_logstore(connection, logstore_of(connection, place).row)


def clear_logstore(connection: sqlite3.Connection, place: Place) -> None:
    """Delete the logs of a logstore; positions continue as after an expiry.

    :raises ApiError: ``ProjectNotExist``, ``LogStoreNotExist``.
    """
    row = logstore_of(connection, place).row
    for table in ("log_groups", "log_blocks"):
        connection.execute(f"DELETE FROM {table} WHERE logstore = ?", (row,))


def split_shard(connection: sqlite3.Connection, place: Place, shard: int, where: str | int, now: float) -> list[Shard]:
    """Split a shard of a logstore: :func:`.shards.split_shard`."""
    return shards.split_shard(connection, logstore_of(connection, place).row, shard, where, now)


def merge_shard(connection: sqlite3.Connection, place: Place, shard: int, now: float) -> list[Shard]:
    """Merge a shard of a logstore with the next one: :func:`.shards.merge_shard`."""
    return shards.merge_shard(connection, logstore_of(connection, place).row, shard, now)


def _delete_logstore(connection: sqlite3.Connection, row: int) -> None:
    # Indexes and consumer groups are deleted with their logstore by the foreign keys.
    for table in ("log_groups", "log_blocks", "sequences", "shards"):
        connection.execute(f"DELETE FROM {table} WHERE logstore = ?", (row,))
    connection.execute("DELETE FROM logstores WHERE id = ?", (row,))
