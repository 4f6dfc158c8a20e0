"""Stream a sample of the events of one component as JSON lines, with secrets hidden.

``/tap?name=NAME&rate=10`` answers with ``{"headers": {…}, "body": "…", "size": 12}`` for each event, where ``size`` is
the bytes of the whole body. A line ``{"passed": 2000}`` each second has the number of events that have passed since the
last such line. NAME is a source, a sink or a group; ``sources.NAME`` and ``sinks.NAME`` are possible, too.

Of a source the events are those for its channels, after its interceptors. Of a sink they are those of each delivery,
also of one that fails.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping

from ..flow.taps import Viewer
from ..run.agent import Agent
from .queries import QueryError, parameters_of
from .redaction import redacted_event

#: Events a second: the default, and the maximum.
_RATE, _MOST_RATE = 10, 100
#: Seconds between two polls of a viewer; number of polls between two lines with the number of events.
_POLL_SECONDS, _POLLS = 0.1, 10


def tapped(agent: Agent, query: str) -> AsyncGenerator[bytes, None]:
    """Return the lines of an answer, until the component is removed, or the option ``tap`` is off.

    :raises QueryError: there is no such component, or the rate is invalid.
    """
    return _lines(agent, *_asked(agent, query))


async def _lines(agent: Agent, key: str, rate: int) -> AsyncGenerator[bytes, None]:
    viewer = Viewer(rate, agent.clock)
    with agent.health_of(key).tap.watched(viewer):
        passed = 0
        while agent.config.tap and key in _names(agent).values():
            for _ in range(_POLLS):
                await asyncio.sleep(_POLL_SECONDS)
                seen, more = viewer.take()
                passed += more
                if seen:
                    events = (redacted_event(each, agent.hidden) for each in seen)
                    yield b"".join([json.dumps(each).encode() + b"\n" for each in events])
            yield json.dumps({"passed": passed}).encode() + b"\n"
            passed = 0


def _asked(agent: Agent, query: str) -> tuple[str, int]:
    """Return the key of a component and the rate of a request.

    :raises QueryError: there is no such component, or the rate is invalid.
    """
    given, names = parameters_of(query), _names(agent)
    name, rate = given.get("name", ""), given.get("rate", str(_RATE))
    if name not in names:
        raise QueryError(f"name must be that of a source or a sink: {', '.join(names)}", name)
    if not (rate.isascii() and rate.isdecimal() and len(rate) < 6 and 1 <= int(rate) <= _MOST_RATE):
        raise QueryError(f"rate must be from 1 to {_MOST_RATE} events a second", rate)
    return names[name], int(rate)


def _names(agent: Agent) -> Mapping[str, str]:
    """Return the key of each component by its names. A name that a source and a sink share is not among them."""
    sources, sinks = agent.blueprint.sources, agent.blueprint.sinks
    keys = {f"sources.{name}": name for name in sources} | {f"sinks.{name}": name for name in sinks}
    shared = sources.keys() & sinks.keys()
    return {name: key for key, name in keys.items() if name not in shared} | {key: key for key in keys}
