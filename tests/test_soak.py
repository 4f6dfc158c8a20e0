"""``make soak`` and what is to be run by it."""

import re
from fnmatch import fnmatch
from pathlib import Path

_ROOT = Path(__file__).parents[1]
#: What of a module's text says that it does more there.
_SOAKS = re.compile(r"PRODUCER_SOAK\b|^from \.killing import .*\b(?:SOAK|KILLS)\b", re.MULTILINE)


def test_whatever_soaks_is_run_by_make_soak() -> None:
    """Every module of tests that does more when ``PRODUCER_SOAK`` is set, and every one that does nothing else."""
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
