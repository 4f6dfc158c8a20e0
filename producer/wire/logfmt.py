r"""Parses lines of logfmt: words of the form ``key=value``, separated by white space.

* A key contains neither white space nor ``=`` nor ``"``. The first word has a value; a later one without ``=`` is a
  flag with the value ``true``.
* A value ends at the next white space. One that begins with ``"`` ends at the next ``"`` without a backslash before it,
  which white space or the end follows. In it, ``\"``, ``\\``, ``\/``, ``\n``, ``\r``, ``\t``, ``\b``, ``\f`` and
  ``\uXXXX`` are as in JSON; any other backslash is an ordinary character.
* Of a repeated key, the last value is used. White space is ASCII only.

Example: the line ``level=info msg="a \"b\"" url=/x?y=z cached`` is ``level`` ``info``, ``msg`` ``a "b"``, ``url``
``/x?y=z`` and ``cached`` ``true``.

``_logfmt.pyx`` parses blocks of lines, and calls :func:`parse_logfmt` for a single line. Without compiled code,
:func:`parse_logfmt` parses all lines.
"""

from __future__ import annotations

import re

# Possessive quantifiers keep the match linear in the length of the line.
_WORD = re.compile(
    r'\s*+(?P<key>[^\s="]++)(?P<value>=(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"|(?!")(?P<bare>\S*+)))?(?=\s|\Z)',
    re.DOTALL | re.ASCII,
)
_REST = re.compile(r"\s*+\Z", re.ASCII)
# Stricter than ``_WORD``, since other text may contain a word with ``=``: all keys are names, and there are no flags.
_PAIRS = re.compile(
    r'(?>(?:\s*+[A-Za-z_@][\w.@-]*+=(?:"(?:[^"\\]|\\.)*+"|(?!")\S*+)(?=\s|\Z)){2,})\s*+', re.DOTALL | re.ASCII
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {'"': '"', "\\": "\\", "/": "/", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


def parse_logfmt(line: str) -> dict[str, str] | None:
    """Return the fields of one line; None if it has another format."""
    fields: dict[str, str] = {}
    at = 0
    while not _REST.match(line, at):
        word = _WORD.match(line, at)
        if word is None or not (fields or word["value"]):
            return None
        fields[word["key"]] = _value(word)
        at = word.end()
    return fields or None


def is_surely_logfmt(line: str) -> bool:
    """Return True if a line of an unknown format is logfmt: two words or more, all of the form ``name=value``."""
    return _PAIRS.fullmatch(line) is not None


def _value(word: re.Match[str]) -> str:
    if word["value"] is None:
        return "true"
    quoted: str | None = word["quoted"]
    if quoted is None:
        return str(word["bare"])
    return _unescaped(quoted) if "\\" in quoted else quoted


def _unescaped(text: str) -> str:
    plain = _ESCAPE.sub(_character, text)
    # Two escapes may be the halves of one character.
    return plain if plain.isascii() else plain.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _character(escape: re.Match[str]) -> str:
    if escape[1] is not None:
        return chr(int(escape[1], 16))
    return _ESCAPED.get(escape[2], escape[0])
