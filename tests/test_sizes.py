"""The sizes of installations are those that the documents name."""

import re
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
#: Most megabytes of each extra.
LIMITS = {"none": 26, "server": 34}
_SIZE = re.compile(r"(none|`\w+`) (\d+) MB")


def requirements(name: str, extra: str) -> Iterator[Requirement]:
    """Yield what a package needs directly with an extra, on this Python."""
    for text in distribution(name).requires or []:
        one = Requirement(text)
        if one.marker is None or one.marker.evaluate({"extra": extra}):
            yield one


def installed(name: str, extras: frozenset[str], seen: dict[tuple[str, str], None]) -> set[str]:
    """Return the names of a package and of all that it needs with these extras."""
    name = canonicalize_name(name)
    for extra in {"", *extras}:
        if (name, extra) not in seen:
            seen[name, extra] = None
            for one in requirements(name, extra):
                installed(one.name, frozenset(one.extras), seen)
    return {each for each, _ in seen}


def megabytes(extra: str) -> float:
    """Return the size of the package with an extra, and of all that it needs, without bytecode."""
    names = installed("loghub-producer", frozenset({extra}), {}) - {"loghub-producer"}
    files = (file for name in names for file in distribution(name).files or [])
    others = sum(file.size or 0 for file in files)
    suffixes = {".py", ".pyi", ".pyx", ".pxd", ".html", ".css", ".js", ".properties", ".grok"}
    own = sum(file.stat().st_size for file in (ROOT / "producer").rglob("*") if file.suffix in suffixes)
    return (others + own) / 1e6


def test_the_sizes_of_installations_are_as_documented() -> None:
    """Each size on the install page is true to within a quarter or 3 MB, and below its limit."""
    page = (ROOT / "docs" / "start" / "install.md").read_text(encoding="utf-8")
    sizes = {name.strip("`"): int(size) for name, size in _SIZE.findall(page)}
    assert {"none", "server", "ship", "agent", "spark"} <= set(sizes)
    for extra, written in sizes.items():
        assert megabytes("" if extra == "none" else extra) == pytest.approx(written, rel=0.25, abs=3), extra
        assert written <= LIMITS.get(extra, 10_000), extra
