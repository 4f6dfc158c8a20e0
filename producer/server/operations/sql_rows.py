"""The logs that a statement reads, as columns of texts, in bounded parts."""

from __future__ import annotations

import json
from collections.abc import Callable

from ...text.plural import counted
from ..errors import ApiError
from ..limits import Limits
from .sql_text import SqlText, folded

_ROWS_AT_ONCE = 10_000
_MAX_FIELDS = 1000

#: Gets the number of a table, the number of rows, and each column as a JSON list of texts or nulls.
TakeRows = Callable[[int, int, dict[str, str]], None]


class SqlRows:
    """A collector of logs that passes them on in parts, with only the fields that the statement may need.

    :ivar count: number of logs so far, of all tables.
    """

    def __init__(self, sql: SqlText, limits: Limits, take: TakeRows) -> None:
        self._sql = sql
        self._limits = limits
        self._take = take
        self._table = 0
        self._columns: dict[str, list[str | None]] = {"__time__": []}
        self._names: dict[str, str] = {"__time__": ""}
        self._bytes = 0
        self.count = 0

    def end_table(self) -> None:
        """Pass on the collected logs; the next ones are of the next table."""
        self.flush()
        self._table += 1
        self._columns = {"__time__": []}
        self._names = {"__time__": ""}

    def add(self, time: int, texts: list[tuple[str, str]]) -> None:
        """Add a log.

        :raises ApiError: ``ParameterInvalid``, the logs are too many or too large.
        """
        held = len(self._columns["__time__"])
        for name, text in texts:
            column = self._column(name)
            if column is not None:
                column += [None] * (held - len(column))
                # The last value of a repeated key counts.
                column[held:] = [text]
                self._bytes += len(text)
        self._columns["__time__"].append(str(time))
        self.count += 1
        self._check_size()
        if held + 1 == _ROWS_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Pass on the collected logs."""
        count = len(self._columns["__time__"])
        if count:
            filled = {name: values for name, values in self._columns.items() if values}
            texts = {name: json.dumps(values + [None] * (count - len(values))) for name, values in filled.items()}
            self._take(self._table, count, texts)
        for values in self._columns.values():
            values.clear()

    def _column(self, name: str) -> list[str | None] | None:
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = self._new_column(name)
        return self._columns[known] if known else None

    def _new_column(self, name: str) -> str:
        """Return the column of a field, empty for none; names that differ in case only share a column."""
        column = folded(name)
        if column == "__time__" or not self._sql.wants(name):
            return ""
        if column not in self._columns and len(self._columns) >= _MAX_FIELDS:
            raise ApiError(
                "ParameterInvalid", f"the logs have more than {_MAX_FIELDS} fields: name the needed ones in the SQL"
            )
        self._columns.setdefault(column, [])
        return column

    def _check_size(self) -> None:
        limits = self._limits
        if self.count > limits.sql_rows:
            raise ApiError(
                "ParameterInvalid",
                f"more than {counted(limits.sql_rows, 'log matches', 'logs match')}: narrow the time or the query",
            )
        if self._bytes > limits.sql_bytes:
            raise ApiError(
                "ParameterInvalid",
                f"the fields that the SQL names have more than {counted(limits.sql_bytes, 'byte')} in these logs:"
                " narrow the time range",
            )
