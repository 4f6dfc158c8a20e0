"""Find resources of a configuration that this machine lacks: certificates, commands, directories.

Only ``check`` does so. A resource may appear before its component needs it. A component without it fails, logs it, and
is restarted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..config.model import ComponentConfig
from ..config.options import Problem
from .blueprint import Blueprint, placed


def missing(blueprint: Blueprint) -> list[Problem]:
    """Return the missing resources as problems, with their lines.

    Options that name resources have a method ``missing``, which yields a :class:`ConfigError` for each missing one.
    """
    found = []
    for where, component, options in components(blueprint):
        for error in getattr(options, "missing", tuple)():
            value = "" if error.value is None else f", got {str(error.value)!r}"
            found.append(placed(Problem(where, error.name, f"{error.rule}{value}"), component))
    return sorted(found, key=lambda problem: problem.line or 0)


def components(blueprint: Blueprint) -> Iterable[tuple[str, ComponentConfig, Any]]:
    """Yield every component's name in messages, configuration and options."""
    config = blueprint.config
    for name, source in blueprint.sources.items():
        yield f"sources.{name}", config.sources[name], source.source.options
        for given, part in zip(config.sources[name].interceptors, source.interceptors, strict=True):
            yield f"sources.{name}.interceptors.{given.name}", given, part.options
    for name, channel in blueprint.channels.items():
        yield f"channels.{name}", config.channels[name], channel.options
    for taker in blueprint.sinks.values():
        for sink in taker.sinks:
            yield f"sinks.{sink.name}", config.sinks[sink.name], sink.options
