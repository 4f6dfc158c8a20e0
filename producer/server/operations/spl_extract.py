"""Operators of SPL that run without the database: ``parse-json``, ``parse-csv``, ``parse-kv`` and ``limit``.

The first three extract fields, whose names may come from the logs. A log without the field, or whose field cannot be
parsed, stays as it is. An extracted field replaces a field of the same name; with ``-mode='preserve'`` the existing one
stays. Topic, source, tags and time cannot be changed.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from ...text.plural import counted
from ..errors import ApiError
from ..store.log_groups import StoredLogGroup, parse_group
from .spl_fields import SHARED_PREFIXES, changed_group, name_of, split_text, unreadable
from .sql_text import folded

_OPTION = re.compile(r"\s*-([a-z-]+)(?:\s*=\s*('(?:[^']|'')*'|\w+))?(?=\s)", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-7]{2,3}|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "s": " "}
_STEP = re.compile(r"""\.([\w-]+)|\[([0-9]{1,9})\]|\[(?:'([^']*)'|"([^"]*)")\]""")
_SPACES = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
#: Maximum number of steps of a path: each of them reads the text again.
_MAX_PATH = 32

#: Returns the names and texts extracted from a text; gets the deadline, ``time.monotonic()`` seconds.
Find = Callable[[str, float], Iterator[tuple[str, str]]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Extraction:
    """Extraction of fields from a field.

    :ivar field: the name of the field.
    :ivar find: returns the extracted names and texts; raises ``ValueError`` or ``RecursionError`` for text of another
        form.
    :ivar prefix: prefix of the extracted names.
    :ivar preserves: True if an existing field stays.
    """

    field: str
    find: Find
    prefix: str = ""
    preserves: bool = False

    def apply(self, groups: list[StoredLogGroup], most: int, seconds: float) -> list[StoredLogGroup]:
        """Return the LogGroups with the extracted fields.

        :param most: largest size of all of them, bytes.
        :param seconds: time for the extraction, seconds; it may take a moment longer.
        :raises ApiError: ``ParameterInvalid``, they are larger; ``RequestTimeout``, the extraction takes longer.
        """
        changed, end = list[StoredLogGroup](), time.monotonic() + seconds
        for group in groups:
            raw = self._apply(group.raw, most, end)
            most -= len(raw)
            changed.append(changed_group(group, raw, group.count))
        return changed

    def _apply(self, raw: bytes, most: int, end: float) -> bytes:
        group = parse_group(raw)
        shared = {"__topic__": group.Topic, "__source__": group.Source}
        shared |= {f"__tag__:{tag.Key}": tag.Value for tag in group.LogTags}
        size = len(raw)
        for log in _in_time(end, group.Logs):
            found = self._found(log, {folded(name): text.encode() for name, text in shared.items()}, end)
            size += sum(len(self.prefix) + len(name) + len(text) for name, text in found.items())
            if size > most:  # checked before each name gets the prefix, which may have thousands of characters
                raise ApiError(
                    "ParameterInvalid", f"the fields from {self.field!r} have more than {counted(most, 'byte')}"
                )
            self._put(log, found)
        return bytes(group.SerializeToString())

    def _found(self, log: Any, values: dict[str, bytes], end: float) -> dict[str, str]:
        """Return the extracted names without the prefix, and texts."""
        values |= {folded(content.Key): content.Value for content in log.Contents}
        try:
            pairs = dict(_in_time(end, self.find(values.get(folded(self.field), b"").decode(), end)))
        except (ValueError, RecursionError):  # ValueError: also for bytes that are not text
            return {}
        return {name: text for name, text in pairs.items() if name}

    def _put(self, log: Any, found: dict[str, str]) -> None:
        own = {content.Key for content in log.Contents}
        named = {f"{self.prefix}{name}": text for name, text in found.items()}
        new = {
            name: text
            for name, text in named.items()
            if name != "__time__" and not name.startswith(SHARED_PREFIXES) and not (self.preserves and name in own)
        }
        if not new:
            return
        kept = [(content.Key, content.Value) for content in log.Contents if content.Key not in new]
        del log.Contents[:]
        for name, value in [*kept, *((name, text.encode()) for name, text in new.items())]:
            log.Contents.add(Key=name, Value=value)


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of a page to ``size`` logs after the first ``offset`` ones."""

    offset: int
    size: int

    def apply(self, groups: list[StoredLogGroup], _most: int, _seconds: float) -> list[StoredLogGroup]:
        """Return the LogGroups with only these logs."""
        skip, left, kept = self.offset, self.size, list[StoredLogGroup]()
        for group in groups:
            begin, end = min(skip, group.count), min(skip + left, group.count)
            skip -= begin
            left -= end - begin
            if (begin, end) == (0, group.count):
                kept.append(group)
            elif begin < end:
                kept.append(changed_group(group, _part(group.raw, begin, end), end - begin))
        return kept


def _part(raw: bytes, begin: int, end: int) -> bytes:
    group = parse_group(raw)
    del group.Logs[end:]
    del group.Logs[:begin]
    return bytes(group.SerializeToString())


def read_limit(rest: str) -> Limit:
    """Parse ``limit [offset,] size``."""
    numbers = [part.strip() for part in rest.split(",")]
    if len(numbers) > 2 or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in numbers):
        raise unreadable(f"limit is {rest[:64]!r}: write a number of logs, 'limit 10' or 'limit 20, 10'")
    return Limit(offset=int(numbers[0]) if len(numbers) == 2 else 0, size=int(numbers[-1]))


def read_parse_json(rest: str) -> Extraction:
    """Parse ``parse-json [-mode='preserve'] [-path='$.a'] [-prefix='p_'] field``: an object's members."""
    given, rest = _options("parse-json", rest, ("mode", "path", "prefix"))
    path = _path(given.get("path", "$"))
    return _extraction(given, rest, lambda text, end: _members_of(_at(text, path, end)))


def read_parse_csv(rest: str) -> Extraction:
    """Parse ``parse-csv [-delim=','] [-quote='"'] [-strict] field as a, b``, which extracts a value for each name."""
    given, rest = _options("parse-csv", rest, ("delim", "quote", "strict"), flags=("strict",))
    field, sign, outputs = (*re.split(r"(?<!\s)\s+(as)\s+", rest, maxsplit=1, flags=re.IGNORECASE), "", "")[:3]
    if not sign:
        raise unreadable("parse-csv names no outputs: write 'parse-csv field as a, b'")
    names = [name_of(part) for part in split_text(outputs)]
    cells, strict = _cells(given.get("delim", ","), given.get("quote", '"')), "strict" in given

    def find(text: str, _end: float) -> Iterator[tuple[str, str]]:
        found = list(itertools.islice(cells(text), len(names) + 1)) if text else []
        return iter(() if strict and len(found) != len(names) else zip(names, found, strict=False))

    return _extraction(given, field, find)


def read_parse_kv(rest: str) -> Extraction:
    """Parse ``parse-kv [-prefix='p_'] field, 'delimiter', 'separator'``, which extracts pairs.

    The older form ``parse-kv -delims='&?' [-kv-sep='='] field`` also removes quotation marks around a value.
    """
    given, rest = _options("parse-kv", rest, ("delims", "kv-sep", "mode", "prefix"))
    field, *signs = split_text(rest)
    if len(signs) > 2 or bool(signs) == ("delims" in given):
        raise unreadable("parse-kv needs a delimiter of pairs: write \"parse-kv field, '&', '='\"")
    separator = _unquoted(signs[1]) if len(signs) == 2 else given.get("kv-sep", "=")
    between = re.escape(_unquoted(signs[0])) if signs else f"[{re.escape(given['delims'])}]"
    if not separator or between in ("", "[]"):
        raise unreadable("parse-kv has an empty delimiter or separator: write at least one character")

    def find(text: str, _end: float) -> Iterator[tuple[str, str]]:
        for pair in re.split(between, text):
            name, sign, value = pair.partition(separator)
            value = value.strip()
            if sign:
                is_quoted = not signs and re.fullmatch(r'".*"', value, re.DOTALL)
                yield name.strip(), value[1:-1] if is_quoted else value

    return _extraction(given, field, find)


def _extraction(given: dict[str, str], field: str, find: Find) -> Extraction:
    mode = given.get("mode", "overwrite")
    if mode not in ("overwrite", "preserve"):
        raise unreadable(f"-mode is {mode[:64]!r}: it must be 'overwrite' or 'preserve'")
    return Extraction(name_of(field), find, given.get("prefix", ""), mode == "preserve")


def _options(
    operator: str, rest: str, known: tuple[str, ...], flags: tuple[str, ...] = ()
) -> tuple[dict[str, str], str]:
    """Return the options at the start, and the rest."""
    given, place = dict[str, str](), 0
    while match := _OPTION.match(rest, place):
        name = match[1].lower()
        if name not in known or (match[2] is None) != (name in flags):
            forms = ", ".join(f"-{one}" if one in flags else f"-{one}='…'" for one in known)
            raise unreadable(f"option -{name[:64]} of {operator} is invalid: use {forms}")
        given[name] = _unquoted(match[2] or "")
        place = match.end()
    return given, rest[place:].strip()


def _unquoted(text: str) -> str:
    text = text.strip()
    if text[:1] == "'" == text[-1:]:
        text = text[1:-1].replace("''", "'")
    return _ESCAPED.sub(_sign, text)


def _sign(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16) if escape[0] == "x" else int(escape, 8))
    return _LETTERS.get(escape, escape)


def _path(text: str) -> list[str | int]:
    steps, place = list[str | int](), 1
    while match := _STEP.match(text, place):
        steps.append(int(match[2]) if match[2] else next(part for part in match.groups() if part is not None))
        place = match.end()
    if text[:1] != "$" or place < len(text):
        raise unreadable(f"-path is {text[:64]!r}: it must be like '$.body.values[0]'")
    if len(steps) > _MAX_PATH:
        raise unreadable(f"-path has {len(steps)} steps: at most {_MAX_PATH} are allowed")
    return steps


def _at(text: str, path: list[str | int], end: float) -> str:
    """Return the JSON text at a path, as written; empty for nothing."""
    for step in path:
        if isinstance(step, int):
            text = dict(enumerate(_in_time(end, _elements(text)))).get(step, "")
        else:
            text = dict(_in_time(end, _members(text))).get(step, "")
    return text


def _members_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield the members of an object: strings decoded, null left out, other values as written."""
    for name, value in _members(text):
        if value != "null":
            yield name, json.loads(value) if value[:1] == '"' else value


def _members(text: str) -> Iterator[tuple[str, str]]:
    for at in _items(text, "{}"):
        name, end = _DECODER.raw_decode(text, at)
        end = _skip(text, end)
        if not isinstance(name, str) or text[end : end + 1] != ":":
            raise ValueError("no member of an object")
        yield name, _value(text, end + 1)


def _elements(text: str) -> Iterator[str]:
    for at in _items(text, "[]"):
        yield _value(text, at)


def _items(text: str, signs: str) -> Iterator[int]:
    """Yield the start of each item of an object or an array."""
    at = _skip(text, 0)
    if text[at : at + 1] != signs[0]:
        raise ValueError("another kind of value")
    end = _DECODER.raw_decode(text, at)[1]
    if _skip(text, end) < len(text):
        raise ValueError("more text follows the value")
    at = _skip(text, at + 1)
    while at < end - 1:
        yield at
        if signs == "{}":
            at = _skip(text, _DECODER.raw_decode(text, at)[1]) + 1
        at = _skip(text, _skip(text, _DECODER.raw_decode(text, _skip(text, at))[1]) + 1)


def _skip(text: str, at: int) -> int:
    match = _SPACES.match(text, at)
    return match.end() if match else at


def _value(text: str, at: int) -> str:
    at = _skip(text, at)
    return text[at : _DECODER.raw_decode(text, at)[1]]


def _in_time(end: float, items: Iterable[T]) -> Iterator[T]:
    """Yield the items before a deadline, ``time.monotonic()`` seconds.

    :raises ApiError: ``RequestTimeout``, the deadline has passed.
    """
    for item in items:
        if time.monotonic() > end:
            raise ApiError("RequestTimeout", "the extraction of fields did not end in time: read fewer logs at a time")
        yield item


def _cells(delimiter: str, quote: str) -> Callable[[str], Iterator[str]]:
    if not delimiter or len(quote) != 1:
        raise unreadable("parse-csv: -delim must have at least one character, and -quote exactly one")
    if quote in delimiter:  # otherwise quoted text would be scanned again after each delimiter
        raise unreadable(f"parse-csv: -delim is {delimiter[:64]!r}: it must not contain -quote, {quote!r}")
    mark = re.escape(quote)
    quoted = re.compile(rf"{mark}((?:[^{mark}]|{mark}{mark})*+){mark}", re.DOTALL)

    def cells(text: str) -> Iterator[str]:
        at = 0
        while True:
            match = quoted.match(text, at)
            if match and (match.end() == len(text) or text.startswith(delimiter, match.end())):
                cell, end = match[1].replace(quote * 2, quote), match.end()
            else:
                end = text.find(delimiter, at)
                cell, end = (text[at:], len(text)) if end < 0 else (text[at:end], end)
            yield cell
            if end == len(text):
                return
            at = end + len(delimiter)

    return cells
