"""The program that runs SQL statements, one after another, each over tables of its own: a process beside the server.

What a statement makes of one value (``repeat('x', 2000000000)``) can be neither bounded nor interrupted inside the
database. So it runs where nothing else is: the memory and processor time of this process are limited by the system, its
owner kills it when time is over, and it ends by itself when its owner is gone. It is started as a package of its own
and imports nothing of ``producer``, so that it starts fast.

Its standard input brings pickled messages, each a pair: ``("begin", Statement as a dict)``, any number of ``("rows",
(table, count, {name: JSON list of texts}))``, and ``("run", None)``. For each "begin" its standard output gives one
byte, :data:`TAKEN`; for each "run" 8 bytes of length and so many bytes of JSON: ``{"refusal": text}`` or ``{"names":
[…], "types": […], "rows": […], "is_worn": …}``. It answers in JSON because what a statement made is not to be trusted
with a pickle.

The logs' fields are columns of tables, one for each logstore, ``__time__`` (a whole number) among them. A field that an
index calls ``long`` or ``double`` is that; another one is a number when all its values are, otherwise text. The
statement can reach nothing else. Everything in its syntax tree must be allowed (:mod:`.tree`), the database is opened
without files, network and settings, and the system lets this process open nothing more once it has warmed up
(:class:`Door`).

The syntax tree that was checked is run, not the text. Of SPL the statement is this server's own, and only the
expressions in it are a client's: the trees of these are put into that of the statement.

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
from .tree import RefusalError, check_spl, check_sql

try:
    import resource
except ImportError:  # no Unix: only the owner's deadline and the database's own bound hold there
    resource = None  # type: ignore[assignment]  # not on Windows

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
#: In this order: the last one lets none be set any more.
_SETTINGS = ("python_enable_replacements = false", "enable_external_access = false", "lock_configuration = true")


#: How deep the syntax tree of an expression may be, in levels of JSON; newer versions of the database take 256 in all.
_MAX_LEVELS = 200
#: Failures that leave the database as it was; after others the process is not used again.
_OF_THE_STATEMENT = (RefusalError, duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError)
#: How the database begins, and how it ends, what it tells of a syntax tree: neither is about what the client wrote.
_OF_THE_TREE = re.compile(r".*unsuccessful query result Error: |\s+LINE \d+: .*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What is to be run.

    :ivar text: the SQL.
    :ivar most_rows: rows that it may give.
    :ivar cuts: whether further rows are left out, instead of being refused.
    :ivar names: what the columns may be where no log matches.
    :ivar tables: of each table its names, and ``BIGINT`` or ``DOUBLE`` by column, where an index says so.
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
    result_bytes: int
    seconds: float
    expressions: dict[str, str] | None = None
    own: str = ""

    @property
    def is_spl(self) -> bool:
        """Whether it is made of SPL."""
        return self.expressions is not None


#: One value of each type that a result can have.
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
    cuts=False,
    names=[],
    tables=[(["log"], {})],
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


def open_database(memory_bytes: int) -> Any:
    """Connect to the one database of this process: to make it takes longer than most statements.

    A statement is one SELECT, so it leaves nothing behind; its tables are dropped after it.

    :param memory_bytes: the memory for tables.
    """
    config: dict[str, Any] = {"memory_limit": f"{memory_bytes // 1024}KiB", "threads": "1", "temp_directory": ""}
    connection = duckdb.connect(":memory:", config=config)
    for macro in MACROS:
        connection.execute(f"CREATE MACRO {macro}")
    for setting in _SETTINGS:
        connection.execute(f"SET {setting}")
    return connection


class Engine:
    """One statement, its tables and its views."""

    def __init__(self, statement: Statement, connection: Any) -> None:
        self.statement = statement
        self.connection = connection
        # No logstore can have such a name.
        self.tables = [Table(f'"raw {number}"') for number in range(len(statement.tables))]
        for table in self.tables:
            self.connection.execute(f"CREATE TABLE {table.raw} (__time__ BIGINT)")

    def clear(self) -> None:
        """Drop its tables and views, as far as they were made."""
        for table, (names, _) in zip(self.tables, self.statement.tables, strict=True):
            for name in names:
                self.connection.execute(f"DROP VIEW IF EXISTS {_quoted(name)}")
            self.connection.execute(f"DROP TABLE IF EXISTS {table.raw}")

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
        tree = spl_tree(connection, statement) if statement.is_spl else sql_tree(connection, statement)
        for table, (names, kinds) in zip(self.tables, statement.tables, strict=True):
            self._make_views(table, names, kinds)
        # As a pragma, which takes no parameter; the table function refuses columns of the same name.
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
    """The syntax tree of a statement of SQL, as JSON.

    :raises RefusalError: it is no single SELECT, or has something in it that is not allowed.
    """
    text, tree = _parsed(connection, statement.text)
    check_sql(tree, [name for names, _ in statement.tables for name in names])
    return text


def spl_tree(connection: Any, statement: Statement) -> str:
    """The syntax tree of a statement of SPL, as JSON, with its expressions in their places.

    :raises RefusalError: one of them is no expression, or has something in it that SPL has not.
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
    """The tree of one expression."""
    (_, select), (_, empty) = _parsed(connection, f"SELECT {text}"), _parsed(connection, "SELECT NULL")
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
            raise RefusalError(f"{text[:64]!r} cannot be run: fields whose names begin with {own!r} cannot be named")
    return dict(found[0])


def _parsed(connection: Any, text: str) -> tuple[str, dict[str, Any]]:
    """The syntax tree of statements, as JSON, and as an object."""
    (told,) = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
    tree: dict[str, Any] = json.loads(told)
    if tree["error"] and tree["error_type"] == "not implemented":
        raise RefusalError("the SQL cannot be run: it must be one SELECT; PIVOT needs its values: FOR x IN ('a', 'b')")
    if tree["error"]:
        raise RefusalError(f"the SQL cannot be run: {' '.join(tree['error_message'].split())[:500]}")
    return str(told), tree


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


def answer(messages: queue.Queue[tuple[str, Any]], engine: Engine, memory_bytes: int) -> dict[str, Any]:
    """Take one statement's rows, and run it: the result, or why there is none, and whether the database is worn."""
    said = dict[str, Any]()
    while True:
        kind, content = messages.get()
        # After a refusal what still comes is taken and thrown away.
        if not said:
            try:
                said = _step(engine, kind, content)
            except (RefusalError, duckdb.Error, RuntimeError, MemoryError) as error:
                said = {
                    "refusal": _told(error, engine.statement, memory_bytes),
                    "is_worn": not isinstance(error, _OF_THE_STATEMENT),
                }
        if kind == "run":
            if not said["is_worn"]:
                engine.clear()
            return said


def _step(engine: Engine, kind: str, content: Any) -> dict[str, Any]:
    if kind == "rows":
        engine.insert(*content)
        return {}
    return {**engine.run(), "is_worn": False}


def _told(error: BaseException, statement: Statement, memory_bytes: int) -> str:
    if isinstance(error, RefusalError):
        return str(error)
    # In one line, as messages of LogHub are: clients show others with backslashes.
    said = _OF_THE_TREE.sub("", " ".join(str(error).split()))
    is_memory = isinstance(error, (duckdb.OutOfMemoryException, MemoryError))
    if is_memory or "bad_alloc" in said or (statement.is_spl and said.startswith("Out of Memory Error")):
        return f"the SQL needs more than {memory_bytes} bytes of memory: narrow it"
    if isinstance(error, RecursionError):
        return "the SQL cannot be run: an expression nests too deep"
    return f"the SQL cannot be run: {said[:500]}"


def main() -> None:
    """Serve until standard input ends; the argument is the memory that a statement may take, in bytes."""
    memory_bytes = int(sys.argv[1])
    # What is written to file descriptor 1 by mistake must not look like an answer.
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
        said = answer(messages, Engine(statement, connection), memory_bytes)
        said["is_worn"] = said["is_worn"] or door.address_space() > base + _WORN_BYTES
        body = json.dumps(said).encode()
        answers.write(len(body).to_bytes(8, "big") + body)
        answers.flush()


def _warm_up(connection: Any) -> None:
    """Run statements: what the database takes once, up to 250 MiB of address space, is no statement's.

    Each type of a result is made once, as some need a module, which cannot be opened later.
    """
    engine = Engine(_WARMING, connection)
    engine.insert(0, 1, {"__time__": '["0"]', "x": '["0"]'})
    engine.run()
    engine.clear()
    for values in _VALUES:
        with suppress(duckdb.Error):  # a module may be missing, such as that of time zones
            list(map(_text, connection.execute(f"SELECT {values}").fetchall()[0]))


def _read(messages: queue.Queue[tuple[str, Any]]) -> None:
    """Bring messages; at the end of the input the process is over, whatever it does."""
    try:
        while True:
            messages.put(pickle.load(sys.stdin.buffer))  # noqa: S301 - from the process that started this one
    finally:
        os._exit(0)


class Door:
    """The limit that lets this process open no file and no socket any more."""

    def __init__(self) -> None:
        """Set it; what is open stays open."""
        try:
            self._statm = os.open("/proc/self/statm", os.O_RDONLY)
        except OSError:  # no Linux
            self._statm = -1
        if resource is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    def address_space(self) -> int:
        """Bytes of it, where the system tells; otherwise 0."""
        if self._statm < 0:
            return 0
        return int(os.pread(self._statm, 64, 0).split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _limit(statement: Statement, memory_bytes: int) -> None:
    """Have the system bound what this process takes. macOS knows the limit of memory, and does not keep it.

    :param memory_bytes: the address space, 0 for no limit.
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
    """Set the soft limit, as far as the hard one allows: it may be raised again for the next statement."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


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
