"""Check of a statement's syntax tree: everything in it must be listed in :mod:`.allowed`.

DuckDB's own parser makes the tree (``json_serialize_sql``), and the tree is run. So the check and the database cannot
read one text in two ways. An object with a ``class`` is an expression. An object with a ``type`` only is a query node,
a table reference or a modifier.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

from .allowed import FUNCTIONS, NODES, SPL_CLASSES, SQL_CLASSES, TABLE_FUNCTIONS, TYPES

#: Users' names of some refused classes.
_CALLED = {
    "SUBQUERY": "a SELECT",
    "STAR": "'*'",
    "WINDOW": "a window",
    "PARAMETER": "a parameter",
    "POSITIONAL_REFERENCE": "the number of a column",
    "DEFAULT": "DEFAULT",
    "INSERT_QUERY_NODE": "INSERT",
    "UPDATE_QUERY_NODE": "UPDATE",
    "DELETE_QUERY_NODE": "DELETE",
    "SHOW_REF": "DESCRIBE, SHOW or SUMMARIZE",
}


class RefusalError(Exception):
    """Raised when a statement is refused; its text has the reason."""


def check_sql(tree: Any, tables: Iterable[str]) -> None:
    """Check the tree of one SELECT over the given tables and its own common table expressions.

    :raises RefusalError: it contains a name that is not allowed.
    """
    if len(tree["statements"]) != 1:
        raise RefusalError("the SQL cannot be run: it must be one SELECT")
    for node, names in _in_scope(tree, frozenset(name.lower() for name in tables)):
        _check(node, SQL_CLASSES, "SQL")
        if node.get("type") == "BASE_TABLE":
            _check_table(node, names)


def check_spl(tree: Any) -> None:
    """Check the tree of an SPL expression.

    :raises RefusalError: it contains a name that is not allowed.
    """
    for node, _ in _in_scope(tree, frozenset()):
        _check(node, SPL_CLASSES, "SPL")


def _in_scope(tree: Any, tables: frozenset[str]) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Yield each object of the tree with the lower-case names of the tables visible to it.

    A common table expression sees those before it. A recursive one sees itself in its second part only.
    """
    left = [(tree, tables)]
    while left:
        node, names = left.pop()
        if isinstance(node, list):
            left += [(each, names) for each in node]
        elif isinstance(node, dict):
            for entry in node.get("cte_map", {}).get("map", ()):
                left.append((entry["value"], names))
                names |= {entry["key"].lower()}
            yield node, names
            own = {node["cte_name"].lower()} if node.get("type") == "RECURSIVE_CTE_NODE" else set()
            inner = (pair for pair in node.items() if pair[0] != "cte_map")
            left += [(each, names | own if key == "right" else names) for key, each in inner]


def _check(node: dict[str, Any], classes: frozenset[str], dialect: str) -> None:
    kind = node.get("class", node.get("type"))
    if isinstance(kind, str) and kind not in (classes if "class" in node else NODES):
        raise RefusalError(f"the {dialect} cannot be run: {_CALLED.get(kind, kind)} is not allowed in it")
    if "function_name" in node:
        _check_name("function", node["function_name"], FUNCTIONS | TABLE_FUNCTIONS, dialect)
    if node.get("class") == "TYPE":
        _check_name("type", node["type_name"], TYPES, dialect)
    if node.get("type") == "TABLE_FUNCTION":
        _check_name("table function", node["function"]["function_name"], TABLE_FUNCTIONS, dialect)
    if node.get("export_state"):
        raise RefusalError(f"the {dialect} cannot be run: EXPORT_STATE is not allowed in it")


def _check_name(kind: str, name: str, allowed: frozenset[str], dialect: str) -> None:
    """Check a name without its schema: all functions and types are the database's or the server's own."""
    if name.lower() not in allowed:
        near = difflib.get_close_matches(name.lower(), allowed, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        reason = f"{kind} {name[:64]!r} is unknown, or not among those allowed here{hint}"
        raise RefusalError(f"the {dialect} cannot be run: {reason}")


def _check_table(node: dict[str, Any], names: frozenset[str]) -> None:
    path = node["qualified_name"]["path"]
    is_plain = len(path) == 1 and not node["schema_name"] and not node["catalog_name"] and not node["at_clause"]
    if not is_plain or node["table_name"].lower() not in names:
        raise RefusalError(f"the SQL cannot be run: there is no table {'.'.join(path)[:64]!r}; the logs are in 'log'")
