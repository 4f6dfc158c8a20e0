from __future__ import annotations

import re
from pathlib import Path

from producer.agent.blueprint import draw
from producer.agent.config import parse_toml

DOCUMENT = Path(__file__).parents[2] / "docs/agent.md"


def test_the_configurations_of_the_page_are_well() -> None:
    """Each block of TOML that has sources and sinks is a whole agent."""
    blocks = re.findall(r"^```toml\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    whole = [block for block in blocks if "[sources." in block and "[sinks." in block]
    assert whole
    for block in whole:
        draw(parse_toml(block))
