"""Keep long-lived objects from repeated garbage collections; a pytest plugin.

Ten thousand collected tests and their imports are half a million objects. Each full collection takes a quarter of a
second with them, and tests run hundreds, many by :func:`gc.collect`. Before the first test of each module the plugin
collects the garbage and freezes the remaining objects.
"""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest

_MODULE = pytest.StashKey[Path]()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disable the collector: no object made during test collection is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Freeze at the first test of a module, when the fixtures of other modules are torn down."""
    if item.config.stash.get(_MODULE, None) != item.path:
        item.config.stash[_MODULE] = item.path
        gc.collect()
        gc.freeze()


def pytest_unconfigure() -> None:
    """Unfreeze for pytest's own collection, which reports unclosed resources."""
    gc.unfreeze()
