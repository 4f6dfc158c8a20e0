"""Compile grok expressions, ``%{NAME:field}`` in a regular expression, to patterns with named groups.

``patterns.grok`` defines the usual names. A name after the field's, as in ``%{INT:status:int}``, is a type in other
tools; here all fields are text. A field such as ``[http][status]`` is called ``http.status``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files

from ...model.errors import ConfigError
from .patterns import compiled

#: A reference ``%{NAME}`` or ``%{NAME:field}``, or a named group.
_REFERENCE = re.compile(r"%\{(\w+)(?::([\w.@\[\]-]+))?(?::(?:int|float|string|text))?\}|\(\?P?<([A-Za-z_]\w*)>")
#: Most characters of an expression with all its definitions: nested definitions could double without end.
_LONGEST = 100_000


@cache
def usual_patterns() -> Mapping[str, str]:
    """Return the definitions in ``patterns.grok`` by name."""
    text = files(__package__).joinpath("patterns.grok").read_text(encoding="utf-8")  # the package may be in a zip file
    pairs = (line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: definition.strip() for name, definition in pairs}


def grok_parser(expressions: tuple[str, ...], definitions: Mapping[str, str]) -> Callable[[str], dict[str, str] | None]:
    """Return a parser that searches a line for the expressions, and returns the fields of the first that matches.

    :param expressions: expressions that may match anywhere in a line.
    :param definitions: the user's definitions by name; they replace the usual ones.
    :raises ConfigError: an expression is invalid, refers to an unknown name, or has no field.
    """
    searches = [_Grok(expression, definitions).search for expression in expressions]

    def parse(line: str) -> dict[str, str] | None:
        return next((found for search in searches if (found := search(line)) is not None), None)

    return parse


class _Grok:
    """A compiled expression. A field may have several groups, as in alternatives; the first that matched is used."""

    def __init__(self, expression: str, definitions: Mapping[str, str]) -> None:
        self._known = {**usual_patterns(), **definitions}
        self._expression, self._fields, self._size = expression, list[str](), 0
        text = self._expanded(expression, ())
        if not self._fields:
            raise ConfigError("patterns", "has no field: name one, as in %{WORD:level}", expression)
        self._pattern = compiled("patterns", text, "the line is kept without these fields")
        # A group's number is found several times faster than its name.
        numbers = self._pattern.groupindex
        self._groups = [(field, numbers[_name(place)]) for place, field in enumerate(self._fields)]

    def search(self, line: str) -> dict[str, str] | None:
        """Return the fields of a line; None if it does not match."""
        match = self._pattern.search(line)
        if match is None:
            return None
        found: dict[str, str] = {}
        for field, group in self._groups:
            if (value := match[group]) is not None:
                found.setdefault(field, value)
        return found

    def _expanded(self, text: str, within: tuple[str, ...]) -> str:
        """Replace the references in an expression, or in a definition within others."""
        self._size += len(text)
        if self._size > _LONGEST:
            raise ConfigError(
                "patterns", f"is longer than {_LONGEST:,} characters with its definitions", self._expression
            )
        return _REFERENCE.sub(lambda found: self._group(found, within), text)

    def _group(self, found: re.Match[str], within: tuple[str, ...]) -> str:
        name, field, own = found.groups()
        if own is not None:
            return self._named(own)
        if name in within:
            raise ConfigError("patterns", f"%{{{name}}} is defined by itself", self._expression)
        if name not in self._known:
            raise ConfigError("patterns", f"%{{{name}}} is unknown: define it in definitions", self._expression)
        begin = "(?:" if field is None else self._named(field.strip("[]").replace("][", "."))
        return f"{begin}{self._expanded(self._known[name], (*within, name))})"

    def _named(self, field: str) -> str:
        self._fields.append(field)
        return f"(?P<{_name(len(self._fields) - 1)}>"


def _name(number: int) -> str:
    return f"_{number}"
