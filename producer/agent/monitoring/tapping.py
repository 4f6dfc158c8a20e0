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
from collections.abc import AsyncGenerator, Callable, Mapping
from urllib.parse import parse_qs

from ...text.printable import one_line, without_userinfo
from ..config.references import hide
from ..flow.taps import MOST_BODY, MOST_HEADER, Seen, Tap, Viewer
from ..interceptors.kinds import KINDS
from ..run.agent import Agent

#: Events a second: the default, and the maximum.
_RATE, _MOST_RATE = 10, 100
#: Seconds between two polls of a viewer; number of polls between two lines with the number of events.
_POLL_SECONDS, _POLLS = 0.1, 10
_HIDDEN = "***"
#: Kinds of the interceptor ``redact`` that are secrets.
_KINDS = ("password", "bearer")
#: Copies are longer than these limits, so that a secret at the end of a copy is not shown without its rest.
_SHOWN_BODY, _SHOWN_HEADER = MOST_BODY // 2, MOST_HEADER // 2


class TapError(ValueError):
    """Raised for a request that cannot be answered."""


def tapped(agent: Agent, query: str) -> AsyncGenerator[bytes, None]:
    """Return the lines of an answer, until the component is removed, or the option ``tap`` is off.

    :raises TapError: there is no such component, or the rate is invalid.
    """
    return _lines(agent, *_asked(agent, query))


async def _lines(agent: Agent, key: str, rate: int) -> AsyncGenerator[bytes, None]:
    viewer = Viewer(rate, agent.clock)
    with agent.taps.setdefault(key, Tap()).watched(viewer):
        passed = 0
        while agent.config.tap and key in _names(agent).values():
            for _ in range(_POLLS):
                await asyncio.sleep(_POLL_SECONDS)
                seen, more = viewer.take()
                passed += more
                if seen:
                    yield b"".join([_line(each, agent.config.hidden) for each in seen])
            yield json.dumps({"passed": passed}).encode() + b"\n"
            passed = 0


def _asked(agent: Agent, query: str) -> tuple[str, int]:
    """Return the key of a component and the rate of a request.

    :raises TapError: there is no such component, or the rate is invalid.
    """
    asked = {name: values[-1] for name, values in parse_qs(query).items()}
    name, rate, names = asked.get("name", ""), asked.get("rate", str(_RATE)), _names(agent)
    if name not in names:
        raise TapError(f"there is no source or sink {one_line(name[:200])!r}; there are {', '.join(names)}")
    if not (rate.isascii() and rate.isdecimal() and len(rate) < 6 and 1 <= int(rate) <= _MOST_RATE):
        raise TapError(f"rate must be from 1 to {_MOST_RATE} events a second, got {one_line(rate[:200])!r}")
    return names[name], int(rate)


def _names(agent: Agent) -> Mapping[str, str]:
    """Return the key of each component by its names. A source and a sink of one name have only the longer names."""
    sources, sinks = agent.blueprint.sources, agent.blueprint.sinks
    found = {name: f"sources.{name}" for name in sources} | {name: f"sinks.{name}" for name in sinks}
    for name in sources.keys() & sinks.keys():
        del found[name]
    return found | {key: key for key in (*(f"sources.{name}" for name in sources), *(f"sinks.{n}" for n in sinks))}


def _line(seen: Seen, hidden: Mapping[str, str]) -> bytes:
    headers = {redacted(name, hidden): _value(name, value, hidden) for name, value in seen.headers.items()}
    body = redacted(seen.body.decode(errors="backslashreplace"), hidden)[:_SHOWN_BODY]
    return json.dumps({"headers": headers, "body": body, "size": seen.size}).encode() + b"\n"


def _value(name: str, value: str, hidden: Mapping[str, str]) -> str:
    """Return a header's value without secrets; hide all of it if its name is that of a secret."""
    named = f"{name}={json.dumps(value)}"
    if any(_find(kind)(named) != named and _find(kind)(value) == value for kind in _KINDS):
        return _HIDDEN
    return redacted(value, hidden)[:_SHOWN_HEADER]


def redacted(text: str, hidden: Mapping[str, str]) -> str:
    """Return a text without values of the environment and of files, passwords and tokens.

    :param hidden: the values of the configuration, of :class:`~..config.references.References`.
    """
    text = without_userinfo(hide(text, hidden))
    for kind in _KINDS:
        text = _find(kind)(text)
    return text


def _find(kind: str) -> Callable[[str], str]:
    return lambda text: KINDS[kind](text, _HIDDEN)
