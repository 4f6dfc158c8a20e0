"""KnownColumns: the columns of the last file of each table, so that types stay the same in the next file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....runtime.loggers import get_logger
from ....runtime.whole_file import write_whole

_log = get_logger("loghub.agent.sink.objects")

_FILE = "columns.json"
#: Maximum number of columns, of all tables. The table that is unused for longest is forgotten first.
_MOST = 100_000


class KnownColumns:
    """The types of each table's columns.

    :param directory: the directory of the note.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE
        self._tables: dict[str, dict[str, str]] = {}
        try:
            kept: dict[str, Any] = json.loads(self._path.read_text("utf-8"))
            self._tables = {table: {str(n): str(kind) for n, kind in kinds.items()} for table, kinds in kept.items()}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, AttributeError) as error:
            _log.warning("%s cannot be read, so types of columns may differ from former files: %s", self._path, error)

    def of(self, table: str) -> Mapping[str, str]:
        """Return the types of a table's columns by name, in order; empty for an unknown table."""
        if table in self._tables:
            self._tables[table] = self._tables.pop(table)
        return self._tables.get(table, {})

    def note(self, table: str, kinds: Mapping[str, str]) -> None:
        """Store the columns of a table on the disk, before a file of it is written.

        :raises OSError: that failed.
        """
        if list(self._tables.get(table, {}).items()) == list(kinds.items()):
            return
        tables = {**self._tables, table: dict(kinds)}
        total = sum(map(len, tables.values()))
        while total > _MOST and len(tables) > 1:
            total -= len(tables.pop(next(iter(tables))))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._path, json.dumps(tables).encode(), self._path.with_name(f"{_FILE}~"))
        self._tables = tables
