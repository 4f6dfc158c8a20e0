"""A plugin of pytest: the garbage collector does not look again and again at what lasts as long as the run.

Ten thousand collected tests and all that they import are half a million objects: each full collection takes a quarter
of a second with them, and tests make hundreds, many by :func:`gc.collect`. Before the first test of each module what
is garbage goes, and what is left is set aside.
"""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest

_MODULE = pytest.StashKey[Path]()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is made meanwhile is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Everything that tests of other modules needed has been torn down."""
    if item.config.stash.get(_MODULE, None) != item.path:
        item.config.stash[_MODULE] = item.path
        gc.collect()
        gc.freeze()


def pytest_unconfigure() -> None:
    """For pytest's own collection, which tells of what nobody closed."""
    gc.unfreeze()
