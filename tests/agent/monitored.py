"""A running agent with its monitoring, for the tests of its figures, pages and commands."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from producer.agent import Agent
from producer.agent.config import AgentConfig, parse_toml
from producer.agent.monitoring import MonitoringServer

from .parts import Hub

#: A source of lines, a sink with dead letters, and their channels. The texts in braces are those of _TEXTS.
CONFIG = """
[agent]
name = "{name}"
state = "{state}"
{options}
[sources.r1]
type = "feed"
hub = "a"
channels = [{channels}]
{interceptors}
[channels.c1]
type = "memory"
capacity = 100
[channels.dead]
type = "memory"
[sinks.k1]
type = "keep"
hub = "a"
channel = "c1"
dead_letters = "dead"
"""
_TEXTS = {"name": "web", "options": "", "channels": '"c1"', "interceptors": ""}


class Monitored:
    """An agent with its monitoring, and the hubs of its components, until the end of the block.

    :param config: its configuration, with ``{state}`` for the directory.
    :param texts: further texts in braces.
    """

    #: Seconds for the agent to stop.
    patience = 60.0

    def __init__(self, state: Path, hubs: Sequence[Hub] = (), config: str = CONFIG, **texts: str) -> None:
        self.hubs, self.hub = hubs, hubs[0] if hubs else Hub()
        self._text, self._texts = config, {**_TEXTS, "state": str(state), **texts}
        self.agent = Agent(self.config())
        self.agent.start()
        self.server = MonitoringServer(self.agent, port=0)
        self.address = f"127.0.0.1:{self.server.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.server.close()
        self.agent.stop(self.patience)

    def config(self, **texts: str) -> AgentConfig:
        """Return the configuration, with other texts."""
        return parse_toml(self._text.format(**{**self._texts, **texts}))

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
        """Return status, content type and text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response.status, response.headers["Content-Type"], response.read().decode()
        finally:
            connection.close()

    def json(self, path: str, **headers: str) -> Any:
        return json.loads(self.get(path, **headers)[2])
