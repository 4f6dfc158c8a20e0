"""The program that runs SQL statements, one after another, each over tables of its own: a process beside the server.

What a statement makes of one value (``repeat('x', 2000000000)``) can be neither bounded nor interrupted inside the
database. So it runs where nothing else is: the memory and processor time of this process are limited by the system, its
owner kills it when time is over, and it ends by itself when its owner is gone. It is started by the path of this file
and imports nothing of the package, so that it starts fast.

Its standard input brings pickled messages, each a pair: ``("begin", Statement as a dict)``, any number of ``("rows",
(table, count, {name: JSON list of texts}))``, and ``("run", None)``. For each "begin" its standard output gives one
byte, :data:`TAKEN`; for each "run" 8 bytes of length and so many bytes of JSON: ``{"refusal": text}`` or ``{"names":
[…], "types": […], "rows": […], "is_worn": …}``. It answers in JSON because what a statement made is not to be trusted
with a pickle.

The logs' fields are columns of tables, one for each logstore, ``__time__`` (a whole number) among them. A field that an
index calls ``long`` or ``double`` is that; another one is a number when all its values are, otherwise text. The
statement can reach nothing else: no file, no network, no setting.

Of SPL the statement is this server's own, and only the expressions in it are a client's. They are read by the
database's parser, one by one, looked at, and put into the statement as what the parser has made of them: so what is run
is what was looked at, whatever another reader of the text would make of its quotation marks.

This file is long because it is all that the process knows.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import queue
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb

try:
    import resource
except ImportError:  # no Unix: only the owner's deadline and the database's own bound hold there
    resource = None  # type: ignore[assignment]

#: What says that a statement was taken: a process that dies before has not been ended by it.
TAKEN = b"+"
_MIB = 1024 * 1024
#: Of memory, beside twice what the statement may take: stacks, and what the database does not count.
_ROOM_BYTES = 128 * _MIB
#: A process that has grown so much by its statements is worn: the next one gets another.
_WORN_BYTES = 64 * _MIB
_ROWS_AT_ONCE = 256
# A number as it would be written: with zeros before it, it is a name.
_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"
#: What the service's dialect has and this database calls otherwise.
_MACROS = (
    "as_timestamp(t) AS COALESCE(make_timestamp(TRY_CAST(t AS BIGINT) * 1000000), TRY_CAST(t AS TIMESTAMP))",
    "approx_distinct(x) AS approx_count_distinct(x)",
    "approx_percentile(x, p) AS approx_quantile(x, p)",
    "from_unixtime(t) AS make_timestamp(CAST(CAST(t AS DOUBLE) * 1000000 AS BIGINT))",
    "to_unixtime(t) AS epoch(t)",
    "date_format(t, f) AS strftime(t, replace(replace(f, '%i', '%M'), '%s', '%S'))",
    "regexp_like(s, p) AS regexp_matches(s, p)",
    "json_extract_scalar(j, p) AS json_extract_string(j, p)",
    "date_trunc(p, t) AS system.main.date_trunc(p, as_timestamp(CAST(t AS VARCHAR)))",
)
#: In this order: the last one lets none be set any more.
_SETTINGS = ("python_enable_replacements = false", "enable_external_access = false", "lock_configuration = true")


#: What the database's expressions may be and those of SPL may not.
_UNFIT = {
    "SUBQUERY": "a SELECT",
    "STAR": "'*'",
    "WINDOW": "a window",
    "PARAMETER": "a parameter",
    "POSITIONAL_REFERENCE": "the number of a column",
    "DEFAULT": "DEFAULT",
}
#: How deep the syntax tree of an expression may be, in levels of JSON; newer versions of the database take 256 in all.
_MAX_LEVELS = 200
#: How the database begins, and how it ends, what it tells of a syntax tree: neither is about what the client wrote.
_OF_THE_TREE = re.compile(r".*unsuccessful query result Error: |\s+LINE \d+: FROM json_execute.*")


class RefusalError(Exception):
    """The statement cannot be run; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What is to be run.

    :ivar text: the SQL.
    :ivar most_rows: rows that it may give.
    :ivar cuts: whether further rows are left out, instead of being refused.
    :ivar names: what the columns may be where no log matches.
    :ivar tables: of each table its names, and ``BIGINT`` or ``DOUBLE`` by column, where an index says so.
    :ivar memory_bytes: bytes of its tables, and of the process beside them, about.
    :ivar result_bytes: bytes that its result may have.
    :ivar seconds: processor time that it may take; its owner's deadline is what usually ends it.
    :ivar expressions: of SPL: its expressions, by the names of the fields that stand for them in ``text``. If there are
        any, or none are needed, all columns are text, those of ``names`` are always there, and null is left out of a
        row. None where this is no SPL.
    :ivar own: of SPL: what begins a name that an expression may not use.
    """

    text: str
    most_rows: int
    cuts: bool
    names: list[str]
    tables: list[tuple[list[str], dict[str, str]]]
    memory_bytes: int
    result_bytes: int
    seconds: float
    expressions: dict[str, str] | None = None
    own: str = ""

    @property
    def is_spl(self) -> bool:
        """Whether it is made of SPL."""
        return self.expressions is not None


_WARMING = Statement(
    text="SELECT x FROM log",
    most_rows=1,
    cuts=False,
    names=[],
    tables=[(["log"], {})],
    memory_bytes=32 * _MIB,
    result_bytes=_MIB,
    seconds=1,
)


@dataclass(slots=True)
class Table:
    """One table, as it is filled.

    :ivar raw: its name in SQL; what the statement sees is a view of it.
    :ivar columns: the columns that it has so far, beside ``__time__``.
    :ivar rows: how many it has so far.
    """

    raw: str
    columns: list[str] = field(default_factory=list)
    rows: int = 0


class Database:
    """The database of all statements of this process: to make one takes longer than most statements.

    A statement is one SELECT, so it leaves nothing behind; its tables are taken away after it. After a failure there is
    a new database.
    """

    def __init__(self) -> None:
        self._connection: Any = None
        self._memory = ""

    def open(self, memory_bytes: int) -> Any:
        """A connection to it, with these bytes for tables."""
        memory = f"{memory_bytes // 1024}KiB"
        if self._connection is None or memory != self._memory:
            self.close()
            config: dict[str, Any] = {"memory_limit": memory, "threads": "1", "temp_directory": ""}
            self._connection = duckdb.connect(":memory:", config=config)
            self._memory = memory
            for macro in _MACROS:
                self._connection.execute(f"CREATE MACRO {macro}")
            for setting in _SETTINGS:
                self._connection.execute(f"SET {setting}")
        return self._connection

    def close(self) -> None:
        """Forget it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Engine:
    """One statement, its tables and its views."""

    def __init__(self, statement: Statement, database: Database) -> None:
        self.statement = statement
        self.connection = database.open(statement.memory_bytes)
        # No logstore can have such a name.
        self.tables = [Table(f'"raw {number}"') for number in range(len(statement.tables))]
        for table in self.tables:
            self.connection.execute(f"CREATE TABLE {table.raw} (__time__ BIGINT)")

    def clear(self) -> None:
        """Take its tables and views away."""
        for table, (names, _) in zip(self.tables, self.statement.tables, strict=True):
            for name in names:
                self.connection.execute(f"DROP VIEW {_quoted(name)}")
            self.connection.execute(f"DROP TABLE {table.raw}")

    def insert(self, number: int, count: int, columns: dict[str, str]) -> None:
        """Take ``count`` more rows of a table, a column at a time: that is much faster than values."""
        table = self.tables[number]
        for name in columns:
            if name != "__time__" and name not in table.columns:
                self.connection.execute(f"ALTER TABLE {table.raw} ADD COLUMN {_quoted(name)} VARCHAR")
                table.columns.append(name)
        names = ", ".join(map(_quoted, columns))
        parts = ", ".join("""unnest(from_json(?, '["VARCHAR"]'))""" for _ in columns)
        self.connection.execute(f"INSERT INTO {table.raw} ({names}) SELECT {parts}", list(columns.values()))
        table.rows += count

    def run(self) -> dict[str, Any]:
        """Names and types of the columns of the result, and its rows as the service writes them.

        :raises RefusalError: it is no single SELECT, or gives too much.
        """
        connection, statement = self.connection, self.statement
        if not statement.is_spl:
            found = connection.extract_statements(statement.text)
            if len(found) != 1 or found[0].type != duckdb.StatementType.SELECT:
                raise RefusalError("what follows the '|' must be one SELECT")
        for table, (names, kinds) in zip(self.tables, statement.tables, strict=True):
            self._make_views(table, names, kinds)
        if statement.expressions is None:
            connection.execute(statement.text)
        else:
            connection.execute("FROM json_execute_serialized_sql(?)", [spl_tree(connection, statement)])
        description = connection.description or []
        rows = self._fetch([column[0] for column in description])
        types = [str(column[1]).lower() for column in description]
        return {"names": [column[0] for column in description], "types": types, "rows": rows}

    def _fetch(self, names: list[str]) -> list[dict[str, str]]:
        statement, found, size = self.statement, list[dict[str, str]](), 0
        while rows := self.connection.fetchmany(_ROWS_AT_ONCE):
            for row in rows:
                if len(found) == statement.most_rows:
                    if statement.cuts:
                        return found
                    raise RefusalError(
                        f"the result has more than {statement.most_rows} rows: use a smaller LIMIT, and OFFSET"
                    )
                pairs = zip(names, row, strict=True)
                found.append({name: _text(value) for name, value in pairs if value is not None or not statement.is_spl})
                size += len(json.dumps(found[-1]))
                if size > statement.result_bytes:
                    raise RefusalError(f"the result has more than {statement.result_bytes} bytes: use a smaller LIMIT")
        return found

    def _make_views(self, table: Table, names: list[str], types: dict[str, str]) -> None:
        """A table as the statement sees it: each column as what it is; where nothing matched, all that it names."""
        shown = [
            f"TRY_CAST({_quoted(name)} AS {self._type(table, name, types)}) AS {_quoted(name)}"
            for name in table.columns
        ]
        if table.rows == 0 or self.statement.is_spl:
            missing = [name for name in self.statement.names if name not in table.columns]
            null = "CAST(NULL AS VARCHAR)" if self.statement.is_spl else "NULL"
            shown += [f"{null} AS {_quoted(name)}" for name in missing]
        listed = ", ".join(["__time__", *shown])
        for name in names:
            self.connection.execute(f"CREATE VIEW {_quoted(name)} AS SELECT {listed} FROM {table.raw}")  # noqa: S608

    def _type(self, table: Table, name: str, types: dict[str, str]) -> str:
        if self.statement.is_spl or name in types:
            return types.get(name, "VARCHAR")
        column = _quoted(name)
        query = (
            f"SELECT bool_and(CAST(TRY_CAST({column} AS BIGINT) AS VARCHAR) IS NOT DISTINCT FROM {column}),"  # noqa: S608
            f" bool_and(regexp_full_match({column}, '{_NUMBER}')) FROM {table.raw} WHERE {column} IS NOT NULL"
        )
        whole, number = self.connection.execute(query).fetchone() or (False, False)
        return "BIGINT" if whole else "DOUBLE" if number else "VARCHAR"


def spl_tree(connection: Any, statement: Statement) -> str:
    """The syntax tree of a statement of SPL, as JSON, with its expressions in their places.

    :raises RefusalError: one of them is no expression, or has something in it that SPL has not.
    """
    expressions = {
        name: _expression(connection, text, statement.own) for name, text in (statement.expressions or {}).items()
    }
    tree = _parsed(connection, statement.text)
    for parent, key, node in _nodes(tree):
        if len(names := node.get("column_names", ())) == 1 and names[0] in expressions:
            parent[key] = expressions[names[0]]
    return json.dumps(tree)


def _expression(connection: Any, text: str, own: str) -> dict[str, Any]:
    """The tree of one expression."""
    select, empty = _parsed(connection, f"SELECT {text}"), _parsed(connection, "SELECT NULL")
    found = select["statements"][0]["node"].pop("select_list", ())
    empty["statements"][0]["node"].pop("select_list")
    for _, _, node in [*_nodes(select), *_nodes(empty)]:
        node.pop("query_location", None)
        node.pop("query_location_length", None)
    if select != empty or len(found) != 1 or found[0]["alias"]:
        raise RefusalError(f"{text[:64]!r} cannot be run: it is not one expression")
    if _depth(found) > _MAX_LEVELS:
        raise RefusalError(f"{text[:64]!r} cannot be run: it nests too deep")
    for _, _, node in _nodes(found):
        if node.get("class") in _UNFIT:
            raise RefusalError(f"{text[:64]!r} cannot be run: {_UNFIT[node['class']]} has no place in SPL")
        if any(name.lower().startswith(own) for name in node.get("column_names", ())):
            raise RefusalError(f"{text[:64]!r} cannot be run: fields whose names begin with {own!r} cannot be named")
    return dict(found[0])


def _parsed(connection: Any, text: str) -> dict[str, Any]:
    """The syntax tree of statements."""
    (told,) = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
    tree: dict[str, Any] = json.loads(told)
    if tree["error"]:
        raise RefusalError(f"the SQL cannot be run: {' '.join(tree['error_message'].split())[:500]}")
    return tree


def _nodes(tree: Any) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Each object of a tree, with what it is in and where; what is put into its place is not looked into."""
    left = [tree]
    while left:
        parent = left.pop()
        for key, node in list(parent.items() if isinstance(parent, dict) else enumerate(parent)):
            if isinstance(node, dict):
                yield parent, key, node
            if isinstance(node, (dict, list)):
                left.append(node)


def _depth(tree: Any) -> int:
    """How many levels a tree has."""
    level, depth = [tree], 0
    while level:
        depth += 1
        inner = (node.values() if isinstance(node, dict) else node for node in level)
        level = [node for nodes in inner for node in nodes if isinstance(node, (dict, list))]
    return depth


def answer(messages: queue.Queue[tuple[str, Any]], statement: Statement, database: Database) -> dict[str, Any]:
    """What becomes of one statement, up to its "run": its result, or why there is none."""
    refusal: str | None = None
    engine: Engine | None = None
    result: dict[str, Any] = {}
    while True:
        kind, content = messages.get()
        # After a refusal what still comes is taken and thrown away.
        if refusal is None:
            try:
                engine = engine or Engine(statement, database)
                if kind == "rows":
                    engine.insert(*content)
                else:
                    result = engine.run()
                    engine.clear()
            except (RefusalError, duckdb.Error, RuntimeError, MemoryError) as error:
                refusal = _told(error, statement)
                database.close()
        if kind == "run":
            return result if refusal is None else {"refusal": refusal}


def _told(error: BaseException, statement: Statement) -> str:
    if isinstance(error, RefusalError):
        return str(error)
    # In one line, as messages of LogHub are: clients show others with backslashes.
    said = _OF_THE_TREE.sub("", " ".join(str(error).split()))
    is_memory = isinstance(error, (duckdb.OutOfMemoryException, MemoryError))
    if is_memory or "bad_alloc" in said or (statement.is_spl and said.startswith("Out of Memory Error")):
        return f"the SQL needs more than {statement.memory_bytes} bytes of memory: narrow it"
    if isinstance(error, RecursionError):
        return "the SQL cannot be run: an expression nests too deep"
    return f"the SQL cannot be run: {said[:500]}"


def main() -> None:
    """Serve until standard input ends."""
    # What is written to file descriptor 1 by mistake must not look like an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    messages: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=1)
    threading.Thread(target=_read, args=(messages,), daemon=True).start()
    database = Database()
    _warm_up(database)
    base = _address_space()
    while True:
        _, content = messages.get()
        statement = Statement(**content)
        _limit(statement, base)
        answers.write(TAKEN)
        answers.flush()
        said = answer(messages, statement, database)
        said["is_worn"] = _address_space() > base + _WORN_BYTES
        body = json.dumps(said).encode()
        answers.write(len(body).to_bytes(8, "big") + body)
        answers.flush()


def _warm_up(database: Database) -> None:
    """Run a statement: what the database takes once, up to 250 MiB of address space, is no statement's."""
    engine = Engine(_WARMING, database)
    engine.insert(0, 1, {"__time__": '["0"]', "x": '["0"]'})
    engine.run()
    database.close()


def _read(messages: queue.Queue[tuple[str, Any]]) -> None:
    """Bring messages; at the end of the input the process is over, whatever it does."""
    try:
        while True:
            messages.put(pickle.load(sys.stdin.buffer))  # noqa: S301 - from the process that started this one
    finally:
        os._exit(0)


def _address_space() -> int:
    """Bytes of it, where the system tells."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _limit(statement: Statement, base: int) -> None:
    """Have the system bound what this process takes. macOS knows the limit of memory, and does not keep it."""
    if resource is None:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime + statement.seconds) + 1
    _lower(resource.RLIMIT_CPU, seconds)
    _lower(resource.RLIMIT_CORE, 0)
    if base:
        _lower(resource.RLIMIT_AS, base + 2 * statement.memory_bytes + _ROOM_BYTES)


def _lower(kind: int, value: int) -> None:
    """Set the soft limit, as far as the hard one allows: it may be raised again for the next statement."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


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


if __name__ == "__main__":
    main()
