"""Convert an agent in a Flume properties file to TOML, with comments on the settings that were left out."""

from __future__ import annotations

from pathlib import Path

from ..config.properties_file import read_properties
from ..config.toml_text import write_toml
from .blueprint import problems_of


def convert(path: Path, name: str | None = None) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return the TOML text, the settings left out, and the problems to fix before it runs. Its comments have both
    lists, too.

    :param name: the agent's name, as for :func:`~.config.properties_file.read_properties`.
    :raises AgentConfigError: if the file cannot be read, or has no such agent.
    """
    config = read_properties(path, name, ignore_unknown=True, references=False)
    problems = tuple(str(problem) for problem in problems_of(config))
    comments = [f"Converted from agent {config.name} in {path.name}."]
    if config.notes or problems:
        comments += ["", "Left out, or to be fixed:", *(f"* {note}" for note in (*config.notes, *problems))]
    return write_toml(config, comments), config.notes, problems
