"""The program that runs SQL statements, one after another, in a process beside the server.

A single value (``repeat('x', 2000000000)``) can be neither bounded nor interrupted inside the database. So statements
run in a process of their own. The system limits its memory and processor time, its owner kills it after a deadline, and
it ends by itself when its owner is gone. It is started as a package of its own and imports nothing of ``producer``, so
that it starts fast.

Its standard input has pickled messages, each a pair: ``("begin", Statement as a dict)``, any number of ``("rows",
(table, count, {name: JSON list of texts}))``, and ``("run", None)``. For each "begin" its standard output has one byte,
:data:`TAKEN`. For each "run" it has 8 bytes of length and so many bytes of JSON: ``{"refusal": text}`` or ``{"names":
[…], "types": […], "rows": […], "is_worn": …}``. The answer is JSON, because a pickle from a process that ran a client's
statement cannot be trusted.

The fields of the logs are columns of tables, one for each logstore, with ``__time__`` (a whole number) among them. A
field that an index declares ``long`` or ``double`` has that type. Another field is a number if all its values are
numbers, otherwise text. The statement can reach nothing else: everything in its syntax tree must be allowed
(:mod:`.tree`), the database is opened without files, network and settings, and the system lets the warm process open
nothing more (:class:`Door`).

The checked syntax tree is run, not the text. For SPL the statement is this server's own and only its expressions are a
client's, so their trees are inserted into the statement's tree.

This file is long because it is all that the process does.
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
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import duckdb

from .allowed import MACROS
from .dialect import expression_in_duckdb, statement_in_duckdb
from .tree import RefusalError, check_spl, check_sql

try:
    import resource
except ImportError:  # not Unix: only the owner's deadline and the database's own bound apply
    resource = None  # type: ignore[assignment]  # not on Windows

#: Confirms that a statement was taken: if the process dies before, the statement is not the cause.
TAKEN = b"+"
_MIB = 1024 * 1024
#: Memory beside twice the statement's share: stacks, and memory that the database does not count.
_ROOM_BYTES = 128 * _MIB
#: A process that has grown by so many bytes is not reused.
_WORN_BYTES = 64 * _MIB
_ROWS_AT_ONCE = 256
# A number in its canonical form; with leading zeros, a text is a name.
_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"
#: In this order: the last one locks all settings.
_SETTINGS = ("python_enable_replacements = false", "enable_external_access = false", "lock_configuration = true")


#: Deepest syntax tree of an expression, in levels of JSON; newer versions of the database allow 256 in all.
_MAX_LEVELS = 200
#: Errors that leave the database intact; after others the process is not reused.
_STATEMENT_ERRORS = (RefusalError, duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError)
#: Start and end of the database's messages about a syntax tree; neither is about the client's text.
_TREE_DETAILS = re.compile(r".*unsuccessful query result Error: |\s+LINE \d+: .*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement to run.

    :ivar text: the SQL.
    :ivar most_rows: largest number of rows in the result.
    :ivar default_rows: rows of an SQL statement without LIMIT.
    :ivar names: possible columns, for the case that no log matches.
    :ivar tables: for each table its names, and ``BIGINT`` or ``DOUBLE`` by column, where an index declares it.
    :ivar result_bytes: largest size of the result, bytes.
    :ivar seconds: processor time; usually the owner's deadline comes first.
    :ivar expressions: SPL's expressions by the columns that stand for them in ``text``, or None for SQL. In SPL all
        columns are text, those of ``names`` always exist, and a row has no null.
    :ivar own: for SPL, the prefix of names that expressions must not use.
    """

    text: str
    most_rows: int
    names: list[str]
    tables: list[tuple[list[str], dict[str, str]]]
    result_bytes: int
    seconds: float
    default_rows: int = 0
    expressions: dict[str, str] | None = None
    own: str = ""

    @property
    def is_spl(self) -> bool:
        """Return True if the statement is made from SPL."""
        return self.expressions is not None


#: One value of each type of a result.
_VALUES = (
    "true, 1::TINYINT, 1::HUGEINT, 1.5::DECIMAL(5, 1), 1.5::DOUBLE",
    "'x', 'x'::BLOB, '1'::BIT, uuid(), '{}'::JSON",
    "current_date, localtime, now()::TIMESTAMP, INTERVAL 1 DAY",
    "now()",
    "current_time",
    "[1], {'a': 1}, MAP {'a': 1}, [1]::INTEGER[1], 'a'::ENUM ('a'), union_value(a := 1)",
)

_WARMING = Statement(
    text="SELECT x FROM log",
    most_rows=1,
    names=[],
    tables=[(["log"], {})],
    result_bytes=_MIB,
    seconds=1,
)


@dataclass(slots=True)
class Table:
    """A table being filled.

    :ivar raw: its name in SQL; the statement sees a view of it.
    :ivar columns: the columns so far, without ``__time__``.
    :ivar rows: number of rows so far.
    """

    raw: str
    columns: list[str] = field(default_factory=list)
    rows: int = 0


def open_database(memory_bytes: int) -> Any:
    """Connect to the only database of this process, whose creation takes longer than most statements.

    A statement is one SELECT, so it leaves nothing behind; its tables are dropped after it.

    :param memory_bytes: memory for tables, bytes.
    """
    config: dict[str, Any] = {"memory_limit": f"{memory_bytes // 1024}KiB", "threads": "1", "temp_directory": ""}
    connection = duckdb.connect(":memory:", config=config)
    for macro in MACROS:
        connection.execute(f"CREATE MACRO {macro}")
    for setting in _SETTINGS:
        connection.execute(f"SET {setting}")
    return connection


class Engine:
    """A statement with its tables and views."""

    def __init__(self, statement: Statement, connection: Any) -> None:
        self.statement = statement
        self.connection = connection
        # No logstore can have such a name.
        self.tables = [Table(f'"raw {number}"') for number in range(len(statement.tables))]
        for table in self.tables:
            self.connection.execute(f"CREATE TABLE {table.raw} (__time__ BIGINT)")

    def clear(self) -> None:
        """Drop the tables and views that exist."""
        for table, (names, _) in zip(self.tables, self.statement.tables, strict=True):
            for name in names:
                self.connection.execute(f"DROP VIEW IF EXISTS {_quoted(name)}")
            self.connection.execute(f"DROP TABLE IF EXISTS {table.raw}")

    def insert(self, number: int, count: int, columns: dict[str, str]) -> None:
        """Insert ``count`` rows into a table, column by column, which is much faster than single values."""
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
        """Return names and types of the result's columns, and its rows as the service writes them.

        :raises RefusalError: the statement is not a single SELECT, or its result is too large.
        """
        connection, statement = self.connection, self.statement
        tree = spl_tree(connection, statement) if statement.is_spl else sql_tree(connection, statement)
        for table, (names, kinds) in zip(self.tables, statement.tables, strict=True):
            self._make_views(table, names, kinds)
        # A pragma takes no parameters, but the table function refuses several columns of the same name.
        connection.execute(f"PRAGMA json_execute_serialized_sql({_literal(tree)})")
        description = connection.description or []
        rows = self._fetch([column[0] for column in description])
        types = [str(column[1]).lower() for column in description]
        return {"names": [column[0] for column in description], "types": types, "rows": rows}

    def _fetch(self, names: list[str]) -> list[dict[str, str]]:
        statement, found, size = self.statement, list[dict[str, str]](), 0
        while rows := self.connection.fetchmany(_ROWS_AT_ONCE):
            for row in rows:
                if len(found) == statement.most_rows:
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
        """Create the views of a table with typed columns; an empty table gets all columns that the statement names."""
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
            self.connection.execute(f"CREATE VIEW {_quoted(name)} AS SELECT {listed} FROM {table.raw}")

    def _type(self, table: Table, name: str, types: dict[str, str]) -> str:
        if self.statement.is_spl or name in types:
            return types.get(name, "VARCHAR")
        column = _quoted(name)
        query = (
            f"SELECT bool_and(CAST(TRY_CAST({column} AS BIGINT) AS VARCHAR) IS NOT DISTINCT FROM {column}),"
            f" bool_and(regexp_full_match({column}, '{_NUMBER}')) FROM {table.raw} WHERE {column} IS NOT NULL"
        )
        whole, number = self.connection.execute(query).fetchone() or (False, False)
        return "BIGINT" if whole else "DOUBLE" if number else "VARCHAR"


def sql_tree(connection: Any, statement: Statement) -> str:
    """Return the syntax tree of an SQL statement as JSON.

    :raises RefusalError: it is not a single SELECT, or contains a name that is not allowed.
    """
    text, tree = _parsed(connection, statement_in_duckdb(statement.text, statement.default_rows))
    check_sql(tree, [name for names, _ in statement.tables for name in names])
    return text


def spl_tree(connection: Any, statement: Statement) -> str:
    """Return the syntax tree of an SPL statement as JSON, with its expressions inserted.

    :raises RefusalError: an expression is invalid, or contains a name that SPL does not allow.
    """
    expressions = {
        name: _expression(connection, text, statement.own) for name, text in (statement.expressions or {}).items()
    }
    _, tree = _parsed(connection, statement.text)
    for parent, key, node in _nodes(tree):
        if len(names := node.get("column_names", ())) == 1 and names[0] in expressions:
            parent[key] = expressions[names[0]]
    return json.dumps(tree)


def _expression(connection: Any, text: str, own: str) -> dict[str, Any]:
    """Return the tree of one expression."""
    (_, select), (_, empty) = _parsed(connection, expression_in_duckdb(text)), _parsed(connection, "SELECT NULL")
    found = select["statements"][0]["node"].pop("select_list", ())
    empty["statements"][0]["node"].pop("select_list")
    for _, _, node in [*_nodes(select), *_nodes(empty)]:
        node.pop("query_location", None)
        node.pop("query_location_length", None)
    if select != empty or len(found) != 1 or found[0]["alias"]:
        raise RefusalError(f"{text[:64]!r} cannot be run: it is not one expression")
    if _depth(found) > _MAX_LEVELS:
        raise RefusalError(f"{text[:64]!r} cannot be run: it nests too deep")
    check_spl(found)
    for _, _, node in _nodes(found):
        if any(name.lower().startswith(own) for name in node.get("column_names", ())):
            raise RefusalError(f"{text[:64]!r} cannot be run: names that begin with {own!r} are reserved")
    return dict(found[0])


def _parsed(connection: Any, text: str) -> tuple[str, dict[str, Any]]:
    """Return the syntax tree of statements, as JSON and as an object."""
    (text,) = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
    tree: dict[str, Any] = json.loads(text)
    if tree["error"] and tree["error_type"] == "not implemented":
        raise RefusalError("the SQL cannot be run: it must be one SELECT; PIVOT needs its values: FOR x IN ('a', 'b')")
    if tree["error"]:
        raise RefusalError(f"the SQL cannot be run: {' '.join(tree['error_message'].split())[:500]}")
    return str(text), tree


def _nodes(tree: Any) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Yield each object of a tree with its parent and key; a replacement is not visited."""
    left = [tree]
    while left:
        parent = left.pop()
        for key, node in list(parent.items() if isinstance(parent, dict) else enumerate(parent)):
            if isinstance(node, dict):
                yield parent, key, node
            if isinstance(node, (dict, list)):
                left.append(node)


def _depth(tree: Any) -> int:
    """Return the number of levels of a tree."""
    level, depth = [tree], 0
    while level:
        depth += 1
        inner = (node.values() if isinstance(node, dict) else node for node in level)
        level = [node for nodes in inner for node in nodes if isinstance(node, (dict, list))]
    return depth


def answer(messages: queue.Queue[tuple[str, Any]], engine: Engine, memory_bytes: int) -> dict[str, Any]:
    """Read one statement's rows and run it; return the result or the refusal, and whether the database is worn."""
    outcome = dict[str, Any]()
    while True:
        kind, content = messages.get()
        # After a refusal further messages are read and dropped.
        if not outcome:
            try:
                outcome = _step(engine, kind, content)
            except (RefusalError, duckdb.Error, RuntimeError, MemoryError) as error:
                outcome = {
                    "refusal": _refusal(error, engine.statement, memory_bytes),
                    "is_worn": not isinstance(error, _STATEMENT_ERRORS),
                }
        if kind == "run":
            if not outcome["is_worn"]:
                engine.clear()
            return outcome


def _step(engine: Engine, kind: str, content: Any) -> dict[str, Any]:
    if kind == "rows":
        engine.insert(*content)
        return {}
    return {**engine.run(), "is_worn": False}


def _refusal(error: BaseException, statement: Statement, memory_bytes: int) -> str:
    if isinstance(error, RefusalError):
        return str(error)
    # On one line, as messages of LogHub are: clients show line feeds as backslashes.
    text = _TREE_DETAILS.sub("", " ".join(str(error).split()))
    is_memory = isinstance(error, (duckdb.OutOfMemoryException, MemoryError))
    if is_memory or "bad_alloc" in text or (statement.is_spl and text.startswith("Out of Memory Error")):
        return f"the SQL needs more than {memory_bytes} bytes of memory: narrow the query"
    if isinstance(error, RecursionError):
        return "the SQL cannot be run: an expression nests too deep"
    return f"the SQL cannot be run: {text[:500]}"


def main() -> None:
    """Serve statements until standard input ends; the argument is the memory of a statement, bytes."""
    memory_bytes = int(sys.argv[1])
    # Output to file descriptor 1 by mistake must not look like an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    messages: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=1)
    threading.Thread(target=_read, args=(messages,), daemon=True).start()
    connection = open_database(memory_bytes)
    _warm_up(connection)
    door = Door()
    base = door.address_space()
    while True:
        _, content = messages.get()
        statement = Statement(**content)
        _limit(statement, base and base + 2 * memory_bytes + _ROOM_BYTES)
        answers.write(TAKEN)
        answers.flush()
        outcome = answer(messages, Engine(statement, connection), memory_bytes)
        outcome["is_worn"] = outcome["is_worn"] or door.address_space() > base + _WORN_BYTES
        body = json.dumps(outcome).encode()
        answers.write(len(body).to_bytes(8, "big") + body)
        answers.flush()


def _warm_up(connection: Any) -> None:
    """Run statements, so that the database takes its permanent memory (up to 250 MiB of address space) before the first
    client's statement.

    Each type of a result is made once: some need a module, which cannot be opened later.
    """
    engine = Engine(_WARMING, connection)
    engine.insert(0, 1, {"__time__": '["0"]', "x": '["0"]'})
    engine.run()
    engine.clear()
    for values in _VALUES:
        with suppress(duckdb.Error):  # a module may be missing, such as time zones
            list(map(_text, connection.execute(f"SELECT {values}").fetchall()[0]))


def _read(messages: queue.Queue[tuple[str, Any]]) -> None:
    """Read messages; when the input ends, end the process at once."""
    try:
        while True:
            messages.put(pickle.load(sys.stdin.buffer))  # noqa: S301 - from the process that started this one
    finally:
        os._exit(0)


class Door:
    """A limit after which this process can open no file and no socket."""

    def __init__(self) -> None:
        """Set the limit; open files stay open."""
        try:
            self._statm = os.open("/proc/self/statm", os.O_RDONLY)
        except OSError:  # not Linux
            self._statm = -1
        if resource is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    def address_space(self) -> int:
        """Return the size of the address space, bytes; 0 if the system does not report it."""
        if self._statm < 0:
            return 0
        return int(os.pread(self._statm, 64, 0).split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _limit(statement: Statement, memory_bytes: int) -> None:
    """Limit the resources of this process. macOS accepts a limit of memory, but does not enforce it.

    :param memory_bytes: the address space, bytes; 0 for no limit.
    """
    if resource is None:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime + statement.seconds) + 1
    _lower(resource.RLIMIT_CPU, seconds)
    _lower(resource.RLIMIT_CORE, 0)
    if memory_bytes:
        _lower(resource.RLIMIT_AS, memory_bytes)


def _lower(kind: int, value: int) -> None:
    """Set the soft limit, at most to the hard one, so that it can be raised again for the next statement."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: Any) -> str:
    """Return a value as the service writes it, as text."""
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
