"""Flume's configuration as ours: the TOML of an agent in a properties file, with comments on what was left out."""

from __future__ import annotations

from pathlib import Path

from ..config.properties_file import read_properties
from ..config.toml_text import write_toml
from .blueprint import problems_of


def convert(path: Path, name: str | None = None) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The text, what was left out, and why what was written cannot run yet; all of it stands in its comments, too.

    :param name: as of :func:`~.config.properties_file.read_properties`.
    :raises AgentConfigError: the file cannot be read, or has no such agent.
    """
    config = read_properties(path, name, ignore_unknown=True, references=False)
    problems = tuple(str(problem) for problem in problems_of(config))
    comments = [f"Made of agent {config.name} in {path.name}."]
    if config.notes or problems:
        comments += ["", "Left out, or to be changed:", *(f"* {note}" for note in (*config.notes, *problems))]
    return write_toml(config, comments), config.notes, problems
