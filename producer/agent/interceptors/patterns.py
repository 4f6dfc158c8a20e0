r"""Regular expressions of configurations, which may be in Java's syntax, since Flume's are.

``(?<name>…)``, ``\p{Alpha}`` and the like, ``\z``, ``\h`` and ``\Q…\E`` have Java's meaning. ``\d``, ``\w`` and ``\s``
match ASCII, as in Java. All else is Python's ``re``. A search ends at the limit of :mod:`...wire.patterns`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...model.errors import ConfigError
from ...wire.patterns import Pattern

_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7F",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1F\x7F",
    "XDigit": "0-9a-fA-F",
    "Space": r"\s",
}
#: A token of Java's syntax, or an escape or a bracket that is skipped to know the context.
_TOKEN = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|\\(?P<sign>[pP])\{(?:Is)?(?P<kind>\w+)\}|\\(?P<escaped>.)"
    r"|(?P<group>\(\?<(?=[A-Za-z]))|(?P<bracket>[\[\]])",
    re.DOTALL,
)
_ESCAPES = {"z": r"\Z", "h": r"[ \t\xA0]", "R": r"(?:\r\n|[\n\r\x0B\f\x85])", "e": r"\x1B"}
_REFERENCE = re.compile(r"\\(.)|\$(?:(\d)|\{(\w+)\})|(\\)\Z", re.DOTALL)


def compiled(option: str, pattern: str, outcome: str = "it does not match") -> Pattern[str]:
    """Compile the pattern of an option.

    :param outcome: the fate of an event at which the limit ended a search, for the log.
    :raises ConfigError: the pattern is not a regular expression.
    """
    try:
        return Pattern(_TOKEN.sub(_Translation(), pattern), re.ASCII, option=option, outcome=outcome)
    except (re.error, ValueError) as error:
        reason = error.__cause__ or error
        raise ConfigError(option, f"must be a regular expression: {reason}", pattern) from error


class _Translation:
    """Translator of Java's tokens into Python's, in order."""

    def __init__(self) -> None:
        self._in_class = False

    def __call__(self, token: re.Match[str]) -> str:
        for name, translate in _TRANSLATIONS.items():
            if token[name] is not None:
                return translate(self, token)
        raise AssertionError(token)

    def quoted(self, token: re.Match[str]) -> str:
        return re.escape(token["quoted"])

    def kind(self, token: re.Match[str]) -> str:
        members = _POSIX.get(token["kind"])
        if members is None:
            raise re.error(f"{token[0]} is not supported")
        if token["sign"] == "P":
            return _negated(token[0], members, self._in_class)
        return members if self._in_class else f"[{members}]"

    def escaped(self, token: re.Match[str]) -> str:
        return token[0] if self._in_class else _ESCAPES.get(token["escaped"], token[0])

    def group(self, token: re.Match[str]) -> str:
        return token[0] if self._in_class else "(?P<"

    def bracket(self, token: re.Match[str]) -> str:
        self._in_class = token[0] == "["
        return token[0]


_TRANSLATIONS: dict[str, Callable[[_Translation, re.Match[str]], str]] = {
    "quoted": _Translation.quoted,
    "kind": _Translation.kind,
    "escaped": _Translation.escaped,
    "group": _Translation.group,
    "bracket": _Translation.bracket,
}


def _negated(text: str, members: str, in_class: bool) -> str:
    if in_class:
        raise re.error(f"{text} is not supported between brackets")
    return f"[^{members}]"


def replacement_of(java: str) -> str:
    r"""Translate a replacement in Java's syntax into Python's: ``$1`` to ``\g<1>``, and ``\$`` to a dollar."""

    def one(found: re.Match[str]) -> str:
        plain, number, name, _ = found.groups()
        if plain is not None:
            return plain.replace("\\", r"\\")
        return r"\\" if number is None and name is None else rf"\g<{number or name}>"

    return _REFERENCE.sub(one, java)
