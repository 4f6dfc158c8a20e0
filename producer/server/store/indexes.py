"""Index configurations, stored as clients write them, without effect on searches."""

from __future__ import annotations

import json
import sqlite3
from concurrent.futures import Future
from typing import Any

from ..errors import ApiError
from .catalog import logstore_of
from .database import Database
from .rows import Place


class Indexes:
    """The index configurations of all logstores. Each method returns a future.

    The future fails with ``IndexConfigNotExist``, ``ProjectNotExist`` or ``LogStoreNotExist``.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, place: Place, content: dict[str, Any], now: float) -> Future[None]:
        """Create a configuration. Fails with ``IndexAlreadyExist``."""

        def job(connection: sqlite3.Connection) -> None:
            logstore = logstore_of(connection, place)
            insert = "INSERT OR IGNORE INTO indexes VALUES (?, ?, ?)"
            if connection.execute(insert, (logstore.row, json.dumps(content), now)).rowcount == 0:
                raise ApiError("IndexAlreadyExist", f"logstore {place.logstore} already has an index: update it")

        return self._database.submit(job)

    def update(self, place: Place, content: dict[str, Any], now: float) -> Future[None]:
        """Replace the configuration by ``content``."""
        update = "UPDATE indexes SET content = ?, modified = ? WHERE logstore = ?"
        return self._change(place, update, json.dumps(content), now)

    def delete(self, place: Place) -> Future[None]:
        """Delete the configuration."""
        return self._change(place, "DELETE FROM indexes WHERE logstore = ?")

    def get(self, place: Place) -> Future[tuple[dict[str, Any], float]]:
        """Return the configuration, and the time of its last change, Unix seconds."""

        def job(connection: sqlite3.Connection) -> tuple[dict[str, Any], float]:
            query = "SELECT content, modified FROM indexes WHERE logstore = ?"
            row = connection.execute(query, (logstore_of(connection, place).row,)).fetchone()
            if row is None:
                raise _no_index(place)
            return json.loads(row[0]), row[1]

        return self._database.submit(job)

    def _change(self, place: Place, statement: str, *values: object) -> Future[None]:
        def job(connection: sqlite3.Connection) -> None:
            if connection.execute(statement, (*values, logstore_of(connection, place).row)).rowcount == 0:
                raise _no_index(place)

        return self._database.submit(job)


def _no_index(place: Place) -> ApiError:
    return ApiError("IndexConfigNotExist", f"logstore {place.logstore} has no index: create one first")
