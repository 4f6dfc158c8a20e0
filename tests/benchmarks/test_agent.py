"""The agent's benchmark: what it gives to both agents is what Flume's users write, and ours runs it as it is."""

from pathlib import Path

import pytest

from producer.agent.config import parse_toml
from producer.agent.config.properties_file import read_properties
from producer.agent.run.blueprint import draw

from .agent import CASES, EXTRACTED, Case, measure, properties
from .agent_goals import PATHS, Goal, filled
from .agent_goals import Figures as Found


@pytest.mark.parametrize("case", [*CASES.values(), EXTRACTED], ids=[*CASES, "extracted"])
def test_every_file_for_both_agents_is_understood(case: Case, tmp_path: Path) -> None:
    """Without a problem, and without an option passed over."""
    for part in ("in", "out", "state"):
        (tmp_path / part).mkdir()
    file = tmp_path / "agent.properties"
    file.write_text(properties(case, tmp_path))
    blueprint = draw(read_properties(file, "a1"))
    assert [*blueprint.sources, *blueprint.channels, *blueprint.sinks] == ["r", "c", "k"]


def test_a_run_of_ours_is_measured() -> None:
    """Every event is delivered, and rate, CPU and memory are numbers above zero."""
    figures = measure("ours", CASES["memory"], 20_000)
    assert min(figures.rate, figures.cpu, figures.memory) > 0


@pytest.mark.parametrize("path", sorted(PATHS))
def test_every_path_of_the_goals_is_understood(path: str, tmp_path: Path) -> None:
    """Whatever is measured is a whole configuration."""
    for part in PATHS[path]:
        blueprint = draw(parse_toml(filled(part, tmp_path, "a", 1, hop=2, server=3)))
        assert [*blueprint.sources, *blueprint.channels, *blueprint.sinks] == ["r", "c", "k"]


def test_a_goal_is_met_or_missed() -> None:
    """By its bounds, of which memory is one."""
    goal = Goal("x", "MB/s", _never, least=10, memory=100)
    found = [goal.verdict(Found(value, 1, memory)) for value, memory in ((10, 100), (9, 100), (10, 101))]
    assert found == ["met", "**missed**", "**missed**"]
    assert goal.bound() == "≥ 10 MB/s, ≤ 100 MiB"
    assert Goal("x", "%", _never, most=0.5).verdict(Found(0.6, 1, 1)) == "**missed**"


def _never(*_: object) -> Found:
    raise AssertionError
