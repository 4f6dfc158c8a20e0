"""The agent's benchmark runs both agents with one properties file, as Flume's users write it."""

from pathlib import Path

import pytest

from producer.agent.config import parse_toml
from producer.agent.config.properties_file import read_properties
from producer.agent.run.blueprint import draw

from .agent import CASES, EXTRACTED, Case, measure, properties
from .agent_goals import PATHS, Goal, filled
from .agent_goals import Figures as Found
from .agent_rates import RATES, row
from .agent_rates import measure as measure_rate


@pytest.mark.parametrize("case", [*CASES.values(), EXTRACTED], ids=[*CASES, "extracted"])
def test_the_properties_files_for_both_agents_build_without_a_problem(case: Case, tmp_path: Path) -> None:
    """The agent builds the properties files for both agents without a problem."""
    for part in ("in", "out", "state"):
        (tmp_path / part).mkdir()
    file = tmp_path / "agent.properties"
    file.write_text(properties(case, tmp_path))
    blueprint = draw(read_properties(file, "a1"))
    assert [*blueprint.sources, *blueprint.channels, *blueprint.sinks] == ["r", "c", "k"]


def test_a_run_of_our_agent_delivers_every_event_with_figures_above_zero() -> None:
    """A run of our agent delivers every event, and its rate, CPU and memory are above zero."""
    figures = measure("ours", CASES["memory"], 20_000)
    assert min(figures.rate, figures.cpu, figures.memory) > 0


@pytest.mark.parametrize("path", sorted(PATHS))
def test_the_configuration_of_every_path_with_a_goal_is_valid(path: str, tmp_path: Path) -> None:
    """The configuration of every path with a goal is valid."""
    for part in PATHS[path]:
        blueprint = draw(parse_toml(filled(part, tmp_path, "a", 1, hop=2, server=3)))
        assert [*blueprint.sources, *blueprint.channels, *blueprint.sinks] == ["r", "c", "k"]


@pytest.mark.parametrize("path", RATES)
def test_every_path_without_a_goal_delivers_what_is_sent(path: str) -> None:
    """Every path without a goal delivers what is sent to it, with figures above zero in its row."""
    size, figures = found = measure_rate(RATES[path], 0)
    assert min(size, figures.value, figures.cpu, figures.memory) > 0
    assert row(RATES[path], [found]).count("|") == 6


def test_the_bounds_of_value_and_memory_decide_whether_a_goal_is_met() -> None:
    """The bounds of the value and of the memory decide whether a goal is met."""
    goal = Goal("x", "MB/s", _never, least=10, memory=100)
    found = [goal.verdict(Found(value, 1, memory)) for value, memory in ((10, 100), (9, 100), (10, 101))]
    assert found == ["met", "**missed**", "**missed**"]
    assert goal.bound() == "≥ 10 MB/s, ≤ 100 MiB"
    assert Goal("x", "%", _never, most=0.5).verdict(Found(0.6, 1, 1)) == "**missed**"


def _never(*_: object) -> Found:
    raise AssertionError
