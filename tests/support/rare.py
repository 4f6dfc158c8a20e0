"""Leave out slow tests that seldom find a fault of their own: ``--without-rare``, a pytest plugin.

``make test`` uses the option. ``make test-all`` and CI run these tests, too.
"""

from collections.abc import Mapping

import pytest

from tests.processes.interpreters import CURRENT

#: Folders, files and tests below ``tests/``, by group; ``make test`` prints the keys at its end.
RARE: Mapping[str, tuple[str, ...]] = {
    "loops of kills": (
        *("agent/test_kills_files.py", "agent/test_kills_group.py", "agent/test_kills_kafka.py"),
        *("agent/test_kills_loghub.py", "durable/test_kill.py", "spark/writing/test_stream_kill.py"),
        "ship/test_exactly_once.py::test_kills_on_spark_store_nothing_twice",
    ),
    "random histories of file channels": (
        *("channels/file/test_model.py", "channels/file/test_nth_error.py"),
        *("channels/file/recovery/test_every_byte.py", "channels/file/recovery/test_mutations.py"),
    ),
    "the fuzz of the embedded LogHub": ("server/fuzz/test_fuzz.py",),
    "a Spark cluster": ("spark/cluster/test_shipping.py", "spark/cluster/test_writing.py", "spark/test_example.py"),
    "packages and builds": (
        "processes/test_packages.py",
        "wire/test_speed.py::test_without_a_compiler_the_build_goes_through",
    ),
    "the programs of the benchmarks": (
        *("benchmarks/test_peers.py", "benchmarks/test_ship.py", "benchmarks/test_smoke.py"),
        *("benchmarks/test_agent.py", "spark/test_benchmark.py"),
    ),
}
_PYTHONS = "other Pythons"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without-rare", action="store_true", help="leave out what tests/support/rare.py lists")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the rare tests before another plugin sees the list."""
    if config.getoption("without_rare"):
        rare = {item for item in items if is_rare(item.nodeid) or _needs_another_python(item)}
        config.hook.pytest_deselected(items=list(rare))
        items[:] = [item for item in items if item not in rare]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("without_rare"):
        terminalreporter.write_line(f"`make test-all` adds: {', '.join([*RARE, _PYTHONS])}.")


def is_rare(nodeid: str) -> bool:
    """True if the list holds the test, or its file, or a folder that it is in."""
    own = nodeid.removeprefix("tests/")
    return any(own.startswith((f"{place}/", f"{place}::", f"{place}[")) or own == place for place in _PLACES)


def _needs_another_python(item: pytest.Item) -> bool:
    params = getattr(getattr(item, "callspec", None), "params", {})
    return params.get("python", CURRENT) != CURRENT


_PLACES = [place for places in RARE.values() for place in places]
