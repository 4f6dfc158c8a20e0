"""How threads wait in the package, so that none waits for ever."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import producer

_PACKAGE = Path(producer.__file__).parent


def _trees() -> Iterator[tuple[Path, ast.Module]]:
    """The package's files, by their paths in it."""
    for path in sorted(_PACKAGE.rglob("*.py")):
        yield path.relative_to(_PACKAGE), ast.parse(path.read_text())


def _is_timed_get(node: ast.AST) -> bool:
    """Whether it is ``queue.get(timeout=…)``."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get"):
        return False
    return not node.args and any(keyword.arg == "timeout" for keyword in node.keywords)


def test_no_thread_waits_for_a_queue_with_a_timeout() -> None:
    """Of a SimpleQueue such a wait may never end before CPython 3.13; a Signal or a Latch waits on a lock."""
    found = [f"{path}:{node.lineno}" for path, tree in _trees() for node in ast.walk(tree) if _is_timed_get(node)]
    assert found == []
