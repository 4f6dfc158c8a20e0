"""Check that tests named as ``folder/file.py::name`` exist."""

import ast
from functools import lru_cache
from pathlib import Path

TESTS = Path(__file__).parents[1]


@lru_cache
def _names(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef))


def missing_tests(named: list[str]) -> list[str]:
    """Return those of ``named`` that do not exist below ``tests/``."""
    return [one for one in named if one.partition("::")[2] not in _names(TESTS / one.partition("::")[0])]
