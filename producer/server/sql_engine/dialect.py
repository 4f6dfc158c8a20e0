"""Translation of the service's SQL, which is Presto's, to DuckDB's, by sqlglot.

The text is a client's, and sqlglot takes a second for some texts of 8 KB. So it runs here, in the bounded process of
the statement, and the server itself reads tokens only. It makes text, not trees: what runs is what DuckDB reads in that
text, and :mod:`.tree` checks it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import sqlglot

# The generator imports these when it needs them, but then the process can open no file.
import sqlglot.optimizer.simplify
import sqlglot.transforms
from sqlglot import ErrorLevel, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.presto import Presto
from sqlglot.errors import ParseError, TokenError, UnsupportedError
from sqlglot.generator import Generator
from sqlglot.generators.duckdb import DuckDBGenerator

from .tree import RefusalError

# It writes to standard error what it cannot read; DuckDB's own words go to the client.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)


def _from_unixtime(generator: Generator, node: exp.Expression) -> str:
    return generator.func("from_unixtime", *node.args.values())


class Database(DuckDB):
    """DuckDB with the macros of :mod:`.allowed`: a time has no zone, as in the service."""

    class Generator(DuckDBGenerator):
        TRANSFORMS: ClassVar = {**DuckDBGenerator.TRANSFORMS, exp.UnixToTime: _from_unixtime}


def statement_in_duckdb(text: str, default_rows: int) -> str:
    """Return a SELECT in DuckDB's dialect. Without FROM it reads ``log``; without LIMIT it gets one.

    :raises RefusalError: it nests too deep, or DuckDB has no such thing.
    """
    tree = _read(text)
    if tree is None:
        return text
    outer = tree
    while isinstance(outer, exp.SetOperation):
        outer = outer.this
    if isinstance(outer, exp.Select) and not _has(outer, exp.From):
        outer.from_("log", copy=False)
    if not _has(tree, exp.Limit, exp.Fetch):
        tree.limit(default_rows, copy=False)
    return _written(tree)


def expression_in_duckdb(text: str) -> str:
    """Return ``SELECT`` with one expression in DuckDB's dialect.

    :raises RefusalError: it nests too deep, or DuckDB has no such thing.
    """
    tree = _read(f"SELECT {text}")
    return f"SELECT {text}" if tree is None else _written(tree)


def _has(tree: Any, *kinds: type[exp.Expression]) -> bool:
    return any(isinstance(part, kinds) for part in tree.args.values())


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn an error of sqlglot's into a refusal: a client's text must not end the process.

    :raises RefusalError: as the body raises any other exception.
    """
    try:
        yield
    except RecursionError as error:
        raise RefusalError("the SQL cannot be run: an expression nests too deep") from error
    except UnsupportedError as error:
        raise RefusalError(f"the SQL cannot be run: {' '.join(str(error).split())[:500]}") from error
    except Exception as error:
        raise RefusalError(f"the SQL cannot be run: its translation failed with {type(error).__name__}") from error


def _read(text: str) -> Any:
    """Return the tree of one SELECT in Presto's dialect or else DuckDB's; None for other text."""
    with _refusing():
        for dialect in (Presto, DuckDB):
            # Text of another dialect, or several statements, may raise either.
            with suppress(ParseError, TokenError, ValueError):
                (tree,) = sqlglot.parse(text, read=dialect)
                return tree if isinstance(tree, exp.Query) else None
    return None


def _written(tree: Any) -> str:
    with _refusing():
        options = {"unsupported_level": ErrorLevel.RAISE, "comments": False, "normalize_functions": False}
        return str(tree.sql(dialect=Database, **options))
