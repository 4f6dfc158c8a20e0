"""Explain why a text is not TOML, to its author. ``tomllib``'s own messages need knowledge of TOML."""

from __future__ import annotations

import re
import tomllib

from . import toml_lines
from .options import Problem

_TABLE_TWICE = re.compile(r"cannot declare \((.*?),?\) twice")
_FLUMES = re.compile(r"^[\w-]+\.(?:sources|channels|sinks|sinkgroups)(?:\.[^\s=:]+)?[ \t]*[=:]", re.MULTILINE)
#: Texts that take ``tomllib`` to its limits: deeply nested brackets, and numbers of thousands of digits.
_LIMITS = re.compile(r"""(?:[\[{]\s*(?:[\w"'.-]+\s*=\s*)?){64}|\d{4000}""")
#: ``tomllib``'s messages about a string that is open at the end, and the quote that opened it.
_OPENED = {'expected "\'"': "'", "expected \"'''\"": "'''", "unterminated string": '"""'}
_KEY = re.compile(r"[ \t]*([\w.\"'-]+)[ \t]*(=|:)")


def syntax_problem(error: tomllib.TOMLDecodeError, text: str) -> Problem:
    """Return the problem with its line. It shows the line's key but not its value, which may be a secret."""
    flumes = _line_of(_FLUMES, text)
    if flumes is not None and not re.search(r"^\[", text, re.MULTILINE):
        return Problem("", "", "this looks like a properties file of Flume: give it with --flume", flumes)
    message, _, place = str(error).partition(" (at ")
    words = place.removesuffix(")").replace(",", "").split()  # "line 3 column 5", "end of document"
    message = f"{message[:1].lower()}{message[1:]}"
    number = int(words[1]) if words[:1] == ["line"] else _line_of_the_end(message, text)
    return Problem("", "", _in_words(message, text, number), number)


def limit_line(text: str) -> int | None:
    """Return the line with nesting too deep, or a number too long, to be read."""
    return _line_of(_LIMITS, text)


def _line_of_the_end(message: str, text: str) -> int:
    """Return the line where the unterminated string begins; otherwise the last line."""
    quote = _OPENED.get(message, "")
    is_last = quote != '"""' or text.count(quote) % 2  # otherwise the open string is a quote in the last line
    opened = text.rfind(quote) if is_last else len(text)
    return text.count("\n", 0, opened) + 1


def _line_of(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return None if found is None else text.count("\n", 0, found.start()) + 1


def _in_words(message: str, text: str, number: int) -> str:
    lines = text.splitlines()
    line = lines[number - 1] if number <= len(lines) else ""
    found = _KEY.match(line)
    key, sign = found.groups() if found else ("", "")
    if twice := _TABLE_TWICE.match(message):
        return _twice([part.strip().strip("'\"") for part in twice[1].split(",")], lines[: number - 1])
    if message == "cannot overwrite a value":
        return f"{key or 'a key'} is already defined: a key may occur once in a table"
    if message in ("illegal character '\\n'", *_OPENED):
        return "a text has no closing quote"
    if message.startswith("unescaped '\\'"):
        return f"{message}; in single quotes, such as '\\d+', a backslash stands for itself"
    if sign == ":" and message.startswith("expected '='"):
        return "a key and its value have '=' between them, not ':'"
    value = line.partition("=")[2].strip()
    unquoted = value and value[0] not in "\"'[{+-" and not value[0].isdigit() and value not in ("true", "false")
    problem = f"invalid TOML: {message}" + (f" at {key}" if key else "")
    return problem + ("; write texts in quotes" if unquoted else "; a value is missing" if sign and not value else "")


def _twice(names: list[str], before: list[str]) -> str:
    first = toml_lines.lines_of("\n".join(before)).get(tuple(names))
    where = "" if first is None else f", in line {first}"
    return f"[{'.'.join(names)}] is already defined{where}"
