"""``make soak`` runs every soak test."""

import importlib
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
#: The text by which a module's soak tests are found.
_SOAKS = re.compile(r"PRODUCER_SOAK\b|^from \.killing import .*\b(?:SOAK|KILLS)\b", re.MULTILINE)


def test_whatever_soaks_is_run_by_make_soak() -> None:
    """Every module that does more with ``PRODUCER_SOAK``, or only soaks, is run by ``make soak``."""
    rule = (_ROOT / "Makefile").read_text().partition("\nsoak:")[2].partition("\n\n")[0]
    run = re.findall(r"\btests/\S+", rule)
    modules = [
        path.relative_to(_ROOT)
        for path in (_ROOT / "tests").rglob("*.py")
        if path.name.startswith("soak_") or (path.name.startswith("test_") and _SOAKS.search(path.read_text()))
    ]
    assert len(modules) > 10
    left = [str(path) for path in modules if not any(fnmatch(str(path), f"{each.partition('::')[0]}*") for each in run)]
    assert left == [str(Path(__file__).relative_to(_ROOT))]


@pytest.mark.parametrize("path", sorted(_ROOT.glob("tests/**/soak_*.py")), ids=lambda path: path.stem)
def test_a_module_that_only_soaks_can_be_imported(path: Path) -> None:
    """Modules that only ``make soak`` runs follow what they import."""
    importlib.import_module(".".join(path.relative_to(_ROOT).with_suffix("").parts))
