"""Write a configuration as TOML that :mod:`.toml_file` can read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...model.options import options_of
from .limits import Limits
from .model import AgentConfig, ComponentConfig

_DEFAULT_STATE = Path("loghub-agent")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def write_toml(config: AgentConfig, comments: Iterable[str] = ()) -> str:
    """Return the TOML text.

    :param comments: comment lines for the top.
    """
    parts = ["".join(f"# {line}\n" for line in comments), _agent(config)]
    for source in config.sources.values():
        parts.append(_component(("sources", source.name), source, {"channels": source.channels}))
        for interceptor in source.interceptors:
            path = ("sources", source.name, "interceptors")
            parts.append(_component(path, interceptor, {"name": interceptor.name}, of_array=True))
        if source.selector != ComponentConfig("selector", "replicating"):
            parts.append(_component(("sources", source.name, "selector"), source.selector))
    parts += [_component(("channels", channel.name), channel) for channel in config.channels.values()]
    for sink in config.sinks.values():
        letters = {} if sink.dead_letters is None else {"dead_letters": sink.dead_letters}
        parts.append(_component(("sinks", sink.name), sink, {"channel": sink.channel, **letters}))
    parts += [_component(("groups", group.name), group, {"sinks": group.sinks}) for group in config.groups.values()]
    return "\n".join(part for part in parts if part)


def _agent(config: AgentConfig) -> str:
    values: dict[str, Any] = {"name": config.name}
    if config.state != _DEFAULT_STATE:
        values["state"] = str(config.state)
    if config.monitoring is not None:
        values["monitoring"] = config.monitoring
    if config.stop_timeout != 30.0:
        values["stop_timeout"] = config.stop_timeout
    if config.tap:
        values["tap"] = True
    limits = {name: getattr(config.limits, name) for name in options_of(Limits)}
    values |= {name: value for name, value in limits.items() if value is not None}
    return "".join(_table(("agent",), values))


def _component(
    path: Sequence[str], component: ComponentConfig, own: Mapping[str, Any] = {}, *, of_array: bool = False
) -> str:
    values = {"type": component.type, **own, **component.options}
    return "".join(_table(path, values, of_array=of_array))


def _table(path: Sequence[str], values: Mapping[str, Any], *, of_array: bool = False) -> Iterator[str]:
    """Yield the lines of a table: its own keys first, then the tables in it."""
    name = ".".join(map(_key, path))
    yield f"[[{name}]]\n" if of_array else f"[{name}]\n"
    for key, value in values.items():
        if not isinstance(value, Mapping):
            yield f"{_key(key)} = {_value(value)}\n"
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield "\n"
            yield from _table((*path, key), value)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return _text(str(value))


def _text(text: str) -> str:
    """Quote a text, with single quotes where that saves backslashes, as in a regular expression."""
    if "\\" in text and "'" not in text and text.isprintable():
        return f"'{text}'"
    # TOML has all of JSON's escapes, but also requires one for the delete character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
