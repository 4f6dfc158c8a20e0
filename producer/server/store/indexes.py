"""Index configurations, stored as clients write them, without effect on searches.

Each function is a job of the store. It raises :class:`ApiError`: ``IndexConfigNotExist``, ``ProjectNotExist`` or
``LogStoreNotExist``.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from ..errors import ApiError
from .catalog import logstore_of
from .rows import Place


def create(connection: sqlite3.Connection, place: Place, content: dict[str, Any], now: float) -> None:
    """Create a configuration.

    :raises ApiError: ``IndexAlreadyExist``.
    """
    insert = "INSERT OR IGNORE INTO indexes VALUES (?, ?, ?)"
    if connection.execute(insert, (logstore_of(connection, place).row, json.dumps(content), now)).rowcount == 0:
        raise ApiError("IndexAlreadyExist", f"logstore {place.logstore} already has an index: update it")


def update(connection: sqlite3.Connection, place: Place, content: dict[str, Any], now: float) -> None:
    """Replace the configuration by ``content``."""
    statement = "UPDATE indexes SET content = ?, modified = ? WHERE logstore = ?"
    _change(connection, place, statement, json.dumps(content), now)


def delete(connection: sqlite3.Connection, place: Place) -> None:
    """Delete the configuration."""
    _change(connection, place, "DELETE FROM indexes WHERE logstore = ?")


def get(connection: sqlite3.Connection, place: Place) -> tuple[dict[str, Any], float]:
    """Return the configuration, and the time of its last change, Unix seconds."""
    query = "SELECT content, modified FROM indexes WHERE logstore = ?"
    row = connection.execute(query, (logstore_of(connection, place).row,)).fetchone()
    if row is None:
        raise _no_index(place)
    return json.loads(row[0]), row[1]


def _change(connection: sqlite3.Connection, place: Place, statement: str, *values: object) -> None:
    if connection.execute(statement, (*values, logstore_of(connection, place).row)).rowcount == 0:
        raise _no_index(place)


def _no_index(place: Place) -> ApiError:
    return ApiError("IndexConfigNotExist", f"logstore {place.logstore} has no index: create one first")
