"""Parse a properties file as Java does, by javaproperties, with the line of each key."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ...text.extras import how_to_install
from .options import AgentConfigError, Problem

_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Properties:
    """The keys and values of a file.

    :ivar values: the values by key.
    :ivar lines: the line where each key begins, from 1 on.
    :ivar repeated: repeated keys, and the line of the value that does not count.
    """

    values: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    repeated: dict[str, int] = field(default_factory=dict)


def parse_properties(text: str, origin: str = "configuration") -> Properties:
    """Parse a text. Blanks around values are dropped, as in Flume.

    :raises AgentConfigError: an escape is invalid, or javaproperties is not installed.
    """
    try:
        import javaproperties  # of the extra
    except ModuleNotFoundError as error:
        message = f"a properties file needs the Python package javaproperties: {how_to_install('agent')}"
        raise AgentConfigError([Problem("", "", message)], origin) from error
    properties, number = Properties(), 1
    try:
        for part in javaproperties.parse(text):
            if isinstance(part, javaproperties.KeyValue):
                _add(properties, part.key.strip(), part.value.strip(), number)
            number += len(_LINE_END.findall(part.source))
    except javaproperties.InvalidUEscapeError as error:
        raise AgentConfigError([Problem("", "", f"{error}: write four hexadecimal digits", number)], origin) from error
    return properties


def _add(properties: Properties, key: str, value: str, number: int) -> None:
    if key in properties.values:
        properties.repeated[key] = properties.lines[key]
    properties.values[key], properties.lines[key] = value, number
