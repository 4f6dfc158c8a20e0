r"""The tests in a configuration: sample input, and the expected outcome of each event::

    [[tests]]
    name = "a request"
    source = "access"                  # may be left out if there is one source
    input = ['1.2.3.4 - - [27/Nov/2026:14:00:00 +0000] "GET / HTTP/1.1" 200 5', "# a comment"]
    headers = { file = "/var/log/access.log" }

    [[tests.expect]]
    headers = { status = "200" }
    absent = ["request"]
    channels = ["queue"]

    [[tests.expect]]
    dropped = true

The texts are literal: ``${env:X}`` in them is text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .options import nearest, shown
from .toml_lines import Path

Report = Callable[[Path, str], None]


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected outcome of one event. A value that is not given is not compared.

    :ivar body: the body.
    :ivar headers: values of headers; others are not compared.
    :ivar absent: names of headers that the event must not have.
    :ivar channels: the channels that get the event.
    :ivar dropped: True if no channel gets the event.
    """

    body: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    channels: tuple[str, ...] | None = None
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One test of a configuration.

    :ivar name: its name, or its number.
    :ivar source: the source that reads the input; empty for the only one.
    :ivar input: the bytes that the source reads.
    :ivar headers: further headers of the source's events.
    :ivar expect: the outcome of each event, in order.
    :ivar line: its line in the file.
    """

    name: str
    source: str
    input: bytes
    headers: Mapping[str, str]
    expect: tuple[Expected, ...]
    line: int


#: The keys of a test and of an expected outcome: JSON Schema and description.
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_TABLE = {"type": "object", "additionalProperties": _TEXT}
EXPECT_KEYS: dict[str, tuple[dict[str, Any], str]] = {
    "body": (_TEXT, "the body"),
    "headers": (_TABLE, "values of headers; others are not compared"),
    "absent": (_TEXTS, "names of headers that the event must not have"),
    "channels": (_TEXTS, "the channels that get the event"),
    "dropped": ({"type": "boolean"}, "whether no channel gets the event"),
}
CASE_KEYS: dict[str, tuple[dict[str, Any], str]] = {
    "name": (_TEXT, "name of the test; default: its number"),
    "source": (_TEXT, "the source that reads the input; may be left out if there is one"),
    "input": ({"type": ["array", "string"], "items": _TEXT}, "the lines that the source reads, or a text"),
    "headers": (_TABLE, "further headers of the source's events, such as the header of a file"),
    "expect": ({"type": "array"}, "the outcome of each event, in order"),
}
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "string": (lambda value: isinstance(value, str), "must be text"),
    "boolean": (lambda value: isinstance(value, bool), "must be true or false"),
    "array": (
        lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
        "must be a list of texts",
    ),
    "object": (
        lambda value: isinstance(value, Mapping) and all(isinstance(each, str) for each in value.values()),
        "must be a table of texts",
    ),
}


def read_cases(tables: Any, report: Report, line: Callable[[Path], int]) -> Iterator[Case]:
    """Yield the tests of a file; report each problem.

    :param tables: the value of ``tests``.
    :param line: returns the line of a key.
    """
    for place, table in enumerate(_tables(("tests",), tables, report)):
        path: Path = ("tests", place)
        known = _checked(path, table, {**CASE_KEYS, "expect": ({}, "")}, report)
        for key in ("input", "expect"):
            if key not in table:
                report((*path, key), f"is missing: {CASE_KEYS[key][1]}")
        expect = _tables((*path, "expect"), known.get("expect", []), report)
        yield Case(
            known.get("name") or str(place + 1),
            known.get("source", ""),
            _bytes_of(known.get("input", [])),
            known.get("headers", {}),
            tuple(_expected((*path, "expect", n), each, report) for n, each in enumerate(expect)),
            line(path),
        )


def _expected(path: Path, table: Mapping[str, Any], report: Report) -> Expected:
    known = _checked(path, table, EXPECT_KEYS, report)
    if known.get("dropped") and len(known) > 1:
        report((*path, "dropped"), "a dropped event has nothing else to compare")
    for key in known.keys() & {"absent", "channels"}:
        known[key] = tuple(known[key])
    return Expected(**known)


def _tables(path: Path, value: Any, report: Report) -> list[Mapping[str, Any]]:
    if isinstance(value, list) and all(isinstance(each, Mapping) for each in value):
        return value
    names = ".".join(part for part in path if isinstance(part, str))
    report(path, f"must be tables, each under [[{names}]]")
    return []


def _checked(
    path: Path, table: Mapping[str, Any], keys: Mapping[str, tuple[dict[str, Any], str]], report: Report
) -> dict[str, Any]:
    """Return the valid values of a table."""
    valid = {}
    for key, value in table.items():
        if key not in keys:
            report((*path, key), f"no such key{nearest(key, keys)}")
            continue
        kinds = keys[key][0].get("type")
        rules = [_RULES[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds or ())]
        if not rules or any(holds(value) for holds, _ in rules):
            valid[key] = value
        else:
            report((*path, key), f"{' or '.join(rule for _, rule in rules)}, got {shown(value)}")
    return valid


def _bytes_of(given: str | list[str]) -> bytes:
    lines = given.removesuffix("\n").split("\n") if isinstance(given, str) else given
    return "".join(f"{line}\n" for line in lines).encode()
