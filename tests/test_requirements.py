"""A developer's environment has all requirements."""

import pytest
from packaging.requirements import Requirement

from .requirements import PYPROJECT, requirements

_PROJECT = """
[project]
name = "own"
dependencies = ["a>=1.2"]
[project.optional-dependencies]
more = ["own[other]", "c>=3"]
other = ["d"]
[dependency-groups]
dev = ["first", {include-group = "tools"}, "own[more,other]", "b[x]>=2,<3; python_version < '3.13'"]
tools = ["lint"]
"""


def test_a_group_asks_for_all_that_its_groups_and_extras_ask_for() -> None:
    """A group gives the requirements of its groups, its extras and the core, in order and without duplicates."""
    found = requirements(_PROJECT, "dev")
    assert found == ["first", "lint", "d", "c>=3", "b[x]>=2,<3; python_version < '3.13'", "a>=1.2"]
    assert requirements(_PROJECT, "more") == ["d", "c>=3", "a>=1.2"]


def test_an_extra_that_does_not_exist_is_an_error() -> None:
    """A misspelt extra or group is an error, since it would install nothing."""
    with pytest.raises(KeyError):
        requirements(_PROJECT, "dve")


def test_the_locked_versions_are_within_the_bounds() -> None:
    """Each requirement of the developers has a locked version, within its bounds, for the Pythons it is for."""
    lines = (PYPROJECT.parent / "tests" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    locked: dict[str, list[str]] = {}
    for line in lines[1:]:
        name, _, version = line.partition(";")[0].strip().partition("==")
        locked.setdefault(name, []).append(version)
    for text in requirements(PYPROJECT.read_text(encoding="utf-8"), "dev"):
        wanted = Requirement(text)
        versions = locked.get(wanted.name.lower().replace("_", "-").replace(".", "-"), [])
        assert any(version in wanted.specifier for version in versions), f"{text}: run `make lock`"


def test_the_extra_s3_comes_with_a_boto3_that_goes_with_it() -> None:
    """The extra s3 names aiobotocore: pip then finds a boto3 for the extra aws, too."""
    names = [Requirement(each).name for each in requirements(PYPROJECT.read_text(encoding="utf-8"), "s3")]
    assert "aiobotocore" in names
