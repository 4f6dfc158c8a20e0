"""One SQL statement over the logs that match, in a database of its own that lives as long as the statement.

The logs' fields are columns of the table ``log``, ``__time__`` (a whole number) among them. A field that an index calls
``long`` or ``double`` is that; another one is a number when all its values are, otherwise text. The statement can reach
nothing else: no file, no network, no setting. The memory of its tables is bounded, and it can be interrupted between
two steps: what a function makes of one value is neither.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from ..errors import ApiError
from ..limits import Limits
from .sql_text import DEFAULT_ROWS, SqlText

_ROWS_AT_ONCE = 10_000
_MAX_FIELDS = 1000
# A number as it would be written: with zeros before it, it is a name.
_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"
_TYPES = {"long": "BIGINT", "double": "DOUBLE"}
#: What the service's dialect has and this database calls otherwise.
_MACROS = (
    "as_timestamp(t) AS COALESCE(make_timestamp(TRY_CAST(t AS BIGINT) * 1000000), TRY_CAST(t AS TIMESTAMP))",
    "approx_distinct(x) AS approx_count_distinct(x)",
    "from_unixtime(t) AS make_timestamp(CAST(CAST(t AS DOUBLE) * 1000000 AS BIGINT))",
    "to_unixtime(t) AS epoch(t)",
    "date_format(t, f) AS strftime(t, replace(replace(f, '%i', '%M'), '%s', '%S'))",
    "regexp_like(s, p) AS regexp_matches(s, p)",
    "json_extract_scalar(j, p) AS json_extract_string(j, p)",
    "date_trunc(p, t) AS system.main.date_trunc(p, as_timestamp(CAST(t AS VARCHAR)))",
)


@dataclass(frozen=True, slots=True)
class SqlResult:
    """What a statement found: names and types of its columns, and its rows as the service writes them."""

    names: list[str]
    types: list[str]
    rows: list[dict[str, str]]


class SqlEngine:
    """A database for one statement. Everything but :meth:`interrupt` belongs to one thread at a time."""

    def __init__(self, sql: SqlText, limits: Limits, types: Mapping[str, str], table: str) -> None:
        """Make the database; :meth:`close` frees it.

        :param table: another name of the table ``log``.
        :param types: what an index says of fields: ``long``, ``double``, …
        :raises ApiError: ``ParameterInvalid``, the extra is not installed.
        """
        self._duckdb = duckdb = _import_duckdb()
        self._sql = sql
        self._limits = limits
        self._table = table
        self._types = {name.lower(): _TYPES[kind] for name, kind in types.items() if kind in _TYPES}
        self._columns: dict[str, list[str | None]] = {}
        self._names: dict[str, str] = {}
        self._rows = 0
        self._bytes = 0
        memory = f"{limits.sql_bytes // 1024}KiB"
        self._connection = duckdb.connect(
            ":memory:", config={"memory_limit": memory, "threads": "1", "temp_directory": ""}
        )
        self._connection.execute("CREATE TABLE raw (__time__ BIGINT)")
        # Guards the connection against a close while a thread that was given up still uses it.
        self._lock = threading.Lock()

    @property
    def rows(self) -> int:
        """How many logs it has."""
        return self._rows

    def add(self, time: int, texts: list[tuple[str, str]]) -> None:
        """One more log.

        :raises ApiError: ``ParameterInvalid``, these are too many, or too much.
        """
        held = self._rows % _ROWS_AT_ONCE
        for name, text in texts:
            column = self._column(name)
            if column is not None:
                column += [None] * (held - len(column))
                # Of a key that was sent twice the last value is seen, as everywhere.
                column[held:] = [text]
                self._bytes += len(text)
        self._columns.setdefault("__time__", []).append(str(time))
        self._rows += 1
        self._check_size()
        if held + 1 == _ROWS_AT_ONCE:
            self._flush()

    def run(self) -> SqlResult:
        """Run the statement over all logs that were added.

        :raises ApiError: ``ParameterInvalid``, it cannot be run, or gives too much.
        """
        self._flush()
        with self._lock:
            result: SqlResult = self._translated(self._run)
        return result

    def interrupt(self) -> None:
        """End a :meth:`run` in another thread, soon."""
        self._connection.interrupt()

    def close(self) -> None:
        """Free the database, when nobody uses it any more."""
        with self._lock:
            self._connection.close()

    def _column(self, name: str) -> list[str | None] | None:
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = name.lower() if self._sql.wants(name) else ""
            if known and known not in self._columns and known != "__time__":
                self._add_column(known)
        return self._columns[known] if known and known != "__time__" else None

    def _add_column(self, name: str) -> None:
        if len(self._columns) >= _MAX_FIELDS:
            raise ApiError(
                "ParameterInvalid", f"the logs have more than {_MAX_FIELDS} fields: name those that you want"
            )
        self._columns[name] = []
        self._connection.execute(f"ALTER TABLE raw ADD COLUMN {_quoted(name)} VARCHAR")

    def _check_size(self) -> None:
        limits = self._limits
        if self._rows > limits.sql_rows:
            raise ApiError("ParameterInvalid", f"more than {limits.sql_rows} logs match: narrow the time or the query")
        if self._bytes > limits.sql_bytes:
            raise ApiError(
                "ParameterInvalid",
                f"what the SQL names of the logs that match has more than {limits.sql_bytes} bytes: narrow the time",
            )

    def _flush(self) -> None:
        """Move what was collected into the database, a column at a time: that is much faster than values."""
        columns = {name: values for name, values in self._columns.items() if values}
        if not columns:
            return
        count = len(columns["__time__"])
        padded = [values + [None] * (count - len(values)) for values in columns.values()]
        names = ", ".join(map(_quoted, columns))
        parts = ", ".join("""unnest(from_json(?, '["VARCHAR"]'))""" for _ in columns)
        insert = f"INSERT INTO raw ({names}) SELECT {parts}"
        with self._lock:
            self._translated(lambda: self._connection.execute(insert, [json.dumps(values) for values in padded]))
        for values in self._columns.values():
            values.clear()

    def _run(self) -> SqlResult:
        connection = self._connection
        statements = connection.extract_statements(self._sql.text)
        if len(statements) != 1 or statements[0].type != self._duckdb.StatementType.SELECT:
            raise ApiError("ParameterInvalid", "what follows the '|' must be one SELECT")
        self._make_view()
        for macro in _MACROS:
            connection.execute(f"CREATE MACRO {macro}")
        connection.execute("SET python_enable_replacements = false")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        connection.execute(self._sql.text)
        description = connection.description or []
        most = self._limits.sql_result_rows if self._sql.has_limit else DEFAULT_ROWS
        rows = connection.fetchmany(most + 1)
        if len(rows) > most and self._sql.has_limit:
            raise ApiError("ParameterInvalid", f"the result has more than {most} rows: use a smaller LIMIT, and OFFSET")
        names = [column[0] for column in description]
        found = [{name: _text(value) for name, value in zip(names, row, strict=True)} for row in rows[:most]]
        return SqlResult(names, [str(column[1]).lower() for column in description], found)

    def _make_view(self) -> None:
        """The table ``log``: each column as what it is; where nothing matched, all that the statement names."""
        columns = [name for name in self._columns if name != "__time__"]
        if self._rows == 0:
            columns = [word for word in self._sql.words if word not in ("log", "__time__", "")]
            shown = [f"NULL AS {_quoted(name)}" for name in columns]
        else:
            shown = [f"TRY_CAST({_quoted(name)} AS {self._type(name)}) AS {_quoted(name)}" for name in columns]
        listed = ", ".join(["__time__", *shown])
        self._connection.execute(f"CREATE VIEW log AS SELECT {listed} FROM raw")  # noqa: S608 - names are quoted
        if self._table.lower() not in ("log", "raw"):
            self._connection.execute(f"CREATE VIEW {_quoted(self._table)} AS SELECT * FROM log")  # noqa: S608 - likewise

    def _type(self, name: str) -> str:
        if name in self._types:
            return self._types[name]
        column = _quoted(name)
        query = (
            f"SELECT bool_and(CAST(TRY_CAST({column} AS BIGINT) AS VARCHAR) IS NOT DISTINCT FROM {column}),"  # noqa: S608
            f" bool_and(regexp_full_match({column}, '{_NUMBER}')) FROM raw WHERE {column} IS NOT NULL"
        )
        whole, number = self._connection.execute(query).fetchone() or (False, False)
        return "BIGINT" if whole else "DOUBLE" if number else "VARCHAR"

    def _translated(self, work: Callable[[], Any]) -> Any:
        """What ``work`` returns; an error of the database as what the client reads."""
        try:
            return work()
        except self._duckdb.OutOfMemoryException as error:
            raise ApiError(
                "ParameterInvalid", f"the SQL needs more than {self._limits.sql_bytes} bytes of memory: narrow it"
            ) from error
        except (self._duckdb.Error, RuntimeError) as error:
            # In one line, as messages of LogHub are: clients show others with backslashes.
            raise ApiError(
                "ParameterInvalid", f"the SQL cannot be run: {' '.join(str(error).split())[:500]}"
            ) from error


def _import_duckdb() -> Any:
    try:
        import duckdb  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        from ...installing import how_to_install  # noqa: PLC0415  # nothing else of it needs this

        said = f"SQL after '|' needs duckdb where the server runs: {how_to_install('sql')}"
        raise ApiError("ParameterInvalid", said) from error
    return duckdb


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: Any) -> str:
    """A value as the service writes it: everything is text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat(" ", "milliseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (list, dict)):
        return json.dumps(value, default=str, ensure_ascii=False)
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
