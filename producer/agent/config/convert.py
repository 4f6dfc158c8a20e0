"""Flume's configuration as ours: the TOML of an agent in a properties file, with comments on what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..registry import class_of
from .model import AgentConfig
from .properties_file import read_properties
from .toml_text import write_toml


def convert(path: Path, name: str | None = None) -> tuple[str, tuple[str, ...]]:
    """The text, and what was left out or cannot run, which stands in its comments too.

    :param name: as of :func:`~.properties_file.read_properties`.
    :raises AgentConfigError: the file cannot be read, or has no such agent.
    """
    config = read_properties(path, name, ignore_unknown=True, references=False)
    notes = (*config.notes, *(str(problem) for problem in config.problems), *_missing(config))
    comments = [f"Made of agent {config.name} in {path.name}."]
    if notes:
        comments += ["", "Left out, or to be changed:", *(f"* {note}" for note in notes)]
    return write_toml(config, comments), notes


def _missing(config: AgentConfig) -> Iterator[str]:
    """Components of types that there are not."""
    kinds = {"sources": config.sources, "channels": config.channels, "sinks": config.sinks}
    components = [(kind, each) for kind, named in kinds.items() for each in named.values()]
    for kind, component in components:
        try:
            class_of(kind, component.type)
        except (LookupError, ImportError) as error:
            yield f"{kind}.{component.name}: {error.args[0]}"
