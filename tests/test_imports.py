"""Unused modules are not imported."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mypy import api as mypy

import producer
from producer.server import LogHubServer

#: Modules that cost time or threads, and that importing the package alone must not load.
_UNUSED = (
    "asyncio",
    "concurrent",
    "cryptography",
    "google",
    "http",
    "importlib.metadata",
    "logging",
    "lz4",
    "numpy",
    "pyarrow",
    "regex",
    "requests",
    "socket",
    "sqlite3",
    "ssl",
    "tenacity",
    "urllib3",
    "backports",
)


@pytest.fixture
def server() -> Iterator[LogHubServer]:
    with LogHubServer() as server:
        yield server


def imported(statement: str) -> set[str]:
    """Return the modules that a statement imports, in a fresh interpreter."""
    program = (
        f"import sys, json\nbefore = set(sys.modules)\n{statement}\nprint(json.dumps([*set(sys.modules) - before]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    return set(json.loads(done.stdout))


def unused(modules: set[str]) -> list[str]:
    """Return those of the modules that should not be loaded."""
    return sorted(name for name in modules if any(name == each or name.startswith(f"{each}.") for each in _UNUSED))


@pytest.mark.parametrize(("name", "own"), [("producer", {"producer"}), ("loghub", {"loghub", "producer"})])
def test_the_package_alone_is_one_module_without_anything_that_sends_stores_or_compresses(
    name: str, own: set[str]
) -> None:
    """The package alone is one module by each name, without anything that sends, stores or compresses."""
    modules = imported(f"import {name}")
    assert unused(modules) == []
    assert {name for name in modules if name.startswith(("loghub", "producer"))} == own
    assert len(modules) <= 40, sorted(modules)


def test_importing_the_producer_imports_nothing_that_sends() -> None:
    """The class is imported without its stages, a sink, a channel or a compression."""
    modules = imported("from producer import Producer, ProducerConfig, ProjectConfig")
    # A future is one of ``concurrent.futures``, which logs; the configuration looks at the host's address.
    needed = {"concurrent", "concurrent.futures", "concurrent.futures._base", "logging", "socket"}
    assert set(unused(modules)) <= needed
    assert [name for name in modules if name.startswith(("producer.pipeline", "producer.durable"))] == []
    assert [name for name in modules if name.startswith(("producer.channels", "producer.sinks"))] == []
    assert len(modules) <= 130 + 8 * (sys.version_info >= (3, 14)), sorted(modules)


@pytest.mark.parametrize("channel", ["None", "FileChannel(sys.argv[1])"])
def test_no_record_waits_for_an_import(channel: str, server: LogHubServer, tmp_path: Path) -> None:
    """All sending code is imported when a producer is made, not by the first send, a thread or a forked worker."""
    program = f"""
import sys
from producer import Producer, ProjectConfig
from producer.channels import FileChannel
project = ProjectConfig("p", endpoint={server.endpoint!r}, access_key_id={server.access_key_id!r},
                        access_key_secret={server.access_key_secret!r})
with Producer(project, channel={channel}) as producer:
    before = set(sys.modules)
    producer.send("p", "l", {{"k": "v"}}).result(60)
    producer.stream("p", "l").send_many([{{"k": "v"}}])[0].result(60)
    print(*sorted(set(sys.modules) - before))
"""
    command = [sys.executable, "-c", program, str(tmp_path / "channel")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    late = [name for name in done.stdout.split() if name.startswith(("producer", "certifi", "lz4", "backports"))]
    assert late == []


def test_the_server_imports_nothing_of_the_client() -> None:
    """The embedded server shares no code with the client that could hide a common mistake.

    It loads its own modules, the wire, the base of all errors, the registry of forks, locks, and the words, addresses
    and users of both sides. Its package alone loads no module of an extra.
    """
    packages = {"producer.model", "producer.runtime", "producer.text"}
    below = (
        "model.errors",
        *(f"runtime.{name}" for name in ("directory_lock", "forks", "locks", "system_user")),
        "text",
    )
    shared = ("producer.server", "producer.wire", *(f"producer.{name}" for name in below))
    modules = imported("from producer.server import LogHubServer")
    foreign = {name for name in modules if name.startswith("producer.") and not name.startswith(shared)} - packages
    assert foreign == set()
    assert {"producer.server.serving.runner", "producer.wire.signing"} <= modules
    extras = {name.partition(".")[0] for name in imported("import producer.server")}
    assert extras.isdisjoint({"google", "h11", "starlette", "uvicorn", "sqlite3"})


def test_importing_the_errors_imports_nothing_that_sends() -> None:
    """A module that catches errors imports no producer."""
    modules = imported("from producer import ProducerError")
    assert unused(modules) == []
    assert "producer.client.producer" not in modules


def test_type_checkers_all_and_the_interpreter_know_the_same_names_of_the_same_modules() -> None:
    """Type checkers, ``__all__`` and the interpreter know the same names, of the same modules."""
    tree = ast.parse(Path(producer.__file__).read_text(encoding="utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    places = {alias.name: node.module for node in imports for alias in node.names}
    assert set(places) | {"__version__"} == set(producer.__all__)
    assert {name: producer._PLACES.get(name, "model.errors") for name in places} == places
    assert all(getattr(producer, name) is not None for name in producer.__all__)


def test_dir_and_completion_show_every_public_name_and_import_binds_them() -> None:
    """``dir`` and completion show every public name, and ``import *`` binds them."""
    assert set(producer.__all__) <= set(dir(producer))
    bound: dict[str, object] = {}
    exec("from producer import *", bound)
    assert set(producer.__all__) <= set(bound)


def test_a_misspelt_name_is_refused_at_its_import() -> None:
    """A misspelt name is refused at its import."""
    with pytest.raises(ImportError, match="cannot import name 'Prodcer' from 'producer'"):
        exec("from producer import Prodcer")
    with pytest.raises(AttributeError, match="module 'producer' has no attribute 'prodcer'"):
        _ = producer.prodcer  # type: ignore[attr-defined]


def test_type_checkers_see_types_and_misspelt_names(tmp_path: Path) -> None:
    """Lazily imported names have their types under both names, and an unknown one is no ``Any``."""
    program = tmp_path / "program.py"
    names = ["producer", "loghub", "loghub.testing"]
    program.write_text(
        "".join(f"import {name}\n{name}.Prodcer\n" for name in names)
        + "reveal_type(producer.Producer.closed)\nreveal_type(loghub.Producer.closed)\n"
    )
    told, _, code = mypy.run(["--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path), str(program)])
    assert code == 1
    assert told.count('"def (self: producer.client.producer.Producer) -> bool"') + told.count('is "bool"') == 2
    assert told.count('has no attribute "Prodcer"') == len(names)
