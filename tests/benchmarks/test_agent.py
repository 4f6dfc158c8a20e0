"""The agent's benchmark: what it gives to both agents is what Flume's users write, and ours runs it as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from producer.agent.blueprint import draw
from producer.agent.config.properties_file import read_properties

from .agent import CASES, measure, properties


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_file_for_both_agents_is_understood(name: str, tmp_path: Path) -> None:
    """Without a problem, and without an option passed over."""
    for part in ("in", "out", "state"):
        (tmp_path / part).mkdir()
    file = tmp_path / "agent.properties"
    file.write_text(properties(CASES[name], tmp_path))
    blueprint = draw(read_properties(file, "a1"))
    assert [*blueprint.sources, *blueprint.channels, *blueprint.sinks] == ["r", "c", "k"]


def test_a_run_of_ours_is_measured() -> None:
    """Every event is delivered, and rate, CPU and memory are numbers above zero."""
    figures = measure("ours", CASES["memory"], 20_000)
    assert min(figures.rate, figures.cpu, figures.memory) > 0
