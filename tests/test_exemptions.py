"""Exemptions from ruff and mypy in the product have reasons."""

import re
from itertools import chain
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_WITHOUT_A_REASON = re.compile(r"# (noqa(: [A-Z0-9, ]+)?|type: ignore(\[[a-z, -]+\])?)$")


def test_a_line_that_ruff_or_mypy_ignores_says_why() -> None:
    """A line that ruff or mypy ignores says why; pyproject.toml has exemptions of whole kinds, with their reasons."""
    files = chain(_ROOT.glob("*.py"), *(_ROOT.glob(f"{folder}/**/*.py") for folder in ("producer", "examples")))
    found = [
        f"{file.relative_to(_ROOT)}:{number}"
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if _WITHOUT_A_REASON.search(line)
    ]
    assert found == []
