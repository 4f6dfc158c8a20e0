"""What an environment of a developer is made of."""

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
    """In their order, which pip heeds, and once; the core's come as well, the package itself does not."""
    assert requirements(_PROJECT, "dev") == ["first", "d", "c>=3", "b[x]>=2,<3; python_version < '3.13'", "a>=1.2"]


def test_an_extra_that_does_not_exist_is_an_error() -> None:
    """A name that was misspelt would install nothing."""
    with pytest.raises(KeyError):
        requirements(_PROJECT, "dve")
