"""A developer's environment has all requirements."""

import pytest

from .requirements import requirements

_PROJECT = """
[project]
name = "own"
dependencies = ["a>=1.2"]
[project.optional-dependencies]
dev = ["first", "own[more,other]", "b[x]>=2,<3; python_version < '3.13'"]
more = ["own[other]", "c>=3"]
other = ["d"]
"""


def test_an_extra_asks_for_all_that_its_extras_ask_for() -> None:
    """An extra gives the requirements of its nested extras and of the core, in order and without duplicates."""
    assert requirements(_PROJECT, "dev") == ["first", "d", "c>=3", "b[x]>=2,<3; python_version < '3.13'", "a>=1.2"]


def test_an_extra_that_does_not_exist_is_an_error() -> None:
    """A misspelt extra is an error, since it would install nothing."""
    with pytest.raises(KeyError):
        requirements(_PROJECT, "dve")
