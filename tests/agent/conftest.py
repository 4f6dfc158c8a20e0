import logging
from collections.abc import Iterator

import pytest

from producer.agent import Agent
from producer.agent.recoveries import RECOVERIES
from producer.agent.run.supervisor import State


@pytest.fixture(autouse=True)
def recoveries_are_logged() -> Iterator[None]:
    """Log recoveries at the default level, as ``producer agent`` does."""
    logger = logging.getLogger(RECOVERIES)
    logger.setLevel(logging.INFO)
    yield
    logger.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def started_agents(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Agent]]:
    """Yield the agents that a test has started, and stop those that it leaves running, such as after a failure."""
    started, start = list[Agent](), Agent.start

    def recorded(agent: Agent) -> None:
        started.append(agent)
        start(agent)

    monkeypatch.setattr(Agent, "start", recorded)
    yield started
    for agent in started:
        end_what_runs(agent)


def end_what_runs(agent: Agent) -> None:
    """Stop an agent at once; undelivered events are lost."""
    parts = [*agent.sources.values(), *agent.sinks.values()]
    if not all(part.state in (State.FINISHED, State.STOPPED) for part in parts):
        agent.stop(0)
