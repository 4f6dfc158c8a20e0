"""An agent that a test leaves running ends with the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.agent import Agent
from producer.agent.config import parse_toml

from ..support.waiting import eventually

_TEXT = """
[agent]
state = "{state}"
[sources.numbers]
type = "sequence"
channels = ["full"]
[channels.full]
type = "memory"
capacity = 10
[sinks.away]
type = "http"
channel = "full"
endpoint = "http://127.0.0.1:9/x"
"""


@pytest.fixture(scope="module")
def left() -> Iterator[list[Agent]]:
    """Yield the agents left running, and check them after the test's own teardown."""
    agents: list[Agent] = []
    yield agents
    (agent,) = agents
    threads = [part._thread for part in (*agent.sources.values(), *agent.sinks.values())]
    eventually(lambda: not any(thread.is_alive() for thread in threads), "its threads have ended")


def test_an_agent_that_is_left_has_ended_before_the_next_test(left: list[Agent], tmp_path: Path) -> None:
    """An agent whose source waits and whose sink retries has ended before the next test."""
    agent = Agent(parse_toml(_TEXT.format(state=tmp_path)))
    left.append(agent)
    agent.start()
    eventually(lambda: agent.channels["full"].held == 10, "a full channel")
