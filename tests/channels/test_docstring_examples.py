"""The examples in the docstrings of the public classes of channels."""

import doctest
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from producer import Channel, Transaction
from producer.channels import (
    EnvironmentKeys,
    Event,
    FileChannel,
    FileKeys,
    KeyProvider,
    MemoryChannel,
    ProcessFileChannel,
    SpillableChannel,
)

#: Makes the channel of a class's examples.
CHANNELS: dict[type, Callable[[], Channel]] = {
    FileChannel: lambda: FileChannel("channel"),
    ProcessFileChannel: lambda: ProcessFileChannel("base"),
    MemoryChannel: MemoryChannel,
    SpillableChannel: lambda: SpillableChannel(MemoryChannel(), FileChannel("channel")),
}
PUBLIC: list[Any] = [*CHANNELS, Event, Transaction, KeyProvider, FileKeys, EnvironmentKeys]
FOUND = [
    (public, test)
    for public in PUBLIC
    for test in doctest.DocTestFinder().find(public, public.__qualname__, globs={})
    if test.examples
]


@pytest.mark.parametrize(("public", "example"), FOUND, ids=[test.name for _, test in FOUND])
def test_an_example_runs(public: type, example: doctest.DocTest, tmp_path: Path, monkeypatch: Any) -> None:
    """Each example of a public class runs as it stands, with a channel of that class."""
    monkeypatch.chdir(tmp_path)
    printed: list[str] = []
    with mock.patch.dict(os.environ), CHANNELS.get(public, MemoryChannel)() as channel:
        names = {each.__name__: each for each in (EnvironmentKeys, Event, FileKeys, KeyProvider)}
        example.globs = {**names, "channel": channel}
        runner = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST)
        result = runner.run(example, out=printed.append, clear_globs=False)
    assert result.failed == 0, "".join(printed)


@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: public.__name__)
def test_each_public_class_has_an_example(public: type) -> None:
    """A class of channels shows how to use it."""
    assert ">>>" in (inspect.getdoc(public) or "")


@pytest.mark.parametrize("public", [*CHANNELS, Transaction], ids=lambda public: public.__name__)
def test_each_method_for_users_documents_its_parameters(public: type) -> None:
    """A public method describes its parameters, and one of a channel has an example."""
    for name, method in vars(public).items():
        if inspect.isfunction(method) and name[0] != "_":
            text = inspect.getdoc(method) or ""
            assert ">>>" in text or public is Transaction, name
            parameters = set(inspect.signature(method).parameters) - {"self"}
            assert {each for each in parameters if f":param {each}:" not in text} == set(), name
