"""Options: one declaration for code, files and words."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from producer.model.errors import ConfigError
from producer.model.options import Option, check_all, option, options_of, unknown

WHOLE = Option(name="x", kind=int, least=1, most=10, unit="events")
BYTES = Option(name="x", kind=int, least=1024, unit="bytes")
SECONDS = Option(name="x", kind=float, least=0, unit="seconds")
SYNC = Option(name="x", kind=Literal["commit", "os"] | float, least=0.5)
WORD = Option(name="x", kind=Literal["lz4", "none"])
TAGS = Option(name="x", kind=Mapping[str, str])
LIST = Option(name="x", kind=tuple[int, ...])
MAYBE = Option(name="x", kind=str | None, least=1)


@pytest.mark.parametrize(
    ("rule", "text", "value"),
    [
        (WHOLE, " 7 ", 7),
        (WHOLE, 7.0, 7),
        (BYTES, "64k", 64 << 10),
        (BYTES, "2 GiB", 2 << 30),
        (SECONDS, "1.5", 1.5),
        (SYNC, "OS", "os"),
        (SYNC, "2", 2.0),
        (WORD, "LZ4", "lz4"),
        (TAGS, "a=1, b=c=d", {"a": "1", "b": "c=d"}),
        (LIST, "1 2", (1, 2)),
        (LIST, [1, "2"], (1, 2)),
        (MAYBE, "", None),
        (Option(name="x", kind=bool), "Yes", True),
        (Option(name="x", kind=Path), "/a", Path("/a")),
    ],
)
def test_a_file_may_say_it_as_text(rule: Option, text: Any, value: Any) -> None:
    """Values of a file may be text."""
    found = rule.check(text, text=True)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        (WHOLE, "7"),
        (WHOLE, 7.0),
        (WHOLE, True),
        (WHOLE, None),
        (BYTES, "64k"),
        (SECONDS, math.nan),
        (SECONDS, "1"),
        (SYNC, True),
        (WORD, "LZ4"),
        (WORD, ["lz4"]),
        (TAGS, "a=1"),
        (TAGS, {1: "a"}),
        (TAGS, {"a": "\ud800"}),
        (LIST, "1 2"),
        (MAYBE, ""),
        (Option(name="x", kind=bool), "true"),
        (Option(name="x", kind=Callable[[Any], Any] | None), "f"),
        (Option(name="x", kind=int), 2**63),
    ],
)
def test_python_must_pass_the_type_itself(rule: Option, value: Any) -> None:
    """Python values must have the option's type."""
    with pytest.raises(ConfigError, match=r"^x: must be "):
        rule.check(value)


@pytest.mark.parametrize(
    ("rule", "value", "told"),
    [
        (WHOLE, 11, "x: must be a whole number of events from 1 to 10, got 11"),
        (BYTES, 5, "x: must be a whole number of bytes, at least 1024, got 5"),
        (SECONDS, -1, "x: must be a number of seconds, at least 0, got -1"),
        (SYNC, "often", 'x: must be "commit", "os" or a number, at least 0.5, got \'often\''),
        (WORD, "gzip", "x: must be one of lz4, none, got 'gzip'"),
        (TAGS, {"a": 1}, "x: must be a table of text to text, got {'a': 1}"),
        (LIST, [1, "b"], "x: must be a list of whole numbers, got [1, 'b']"),
        (MAYBE, "", "x: must be None or text that is not empty, got ''"),
        (Option(name="x", kind=dict), 5, "x: must be an instance of dict, got 5"),
    ],
)
def test_the_error_tells_name_rule_limit_unit_and_value(rule: Option, value: Any, told: str) -> None:
    """The error has name, rule, limit, unit and value."""
    with pytest.raises(ConfigError) as error:
        rule.check(value)
    assert str(error.value) == told


def test_limits_and_values_have_the_unit_of_the_file() -> None:
    """Errors show limits and values in the unit of the file."""
    rule = Option(name="x", kind=float, least=0.5, scale=0.001)
    with pytest.raises(ConfigError, match=r"^x: must be a number, at least 500, got 250$"):
        rule.check(0.25, text=True, scale=rule.scale)


def test_a_secret_is_in_no_message() -> None:
    """No message shows a secret or a part of it."""
    rule = Option(name="x", kind=Mapping[str, str], secret=True)
    with pytest.raises(ConfigError) as error:
        rule.check({"token": ["hush"]}, text=True)
    assert str(error.value) == "x: must be a table of text to text; the value is secret, and not shown"
    assert "hush" not in f"{error.value!r} {error.value.__cause__!r}"


def test_an_unknown_name_is_refused_with_the_nearest_ones_or_with_all() -> None:
    """An unknown name is refused with the nearest ones, or with all."""
    assert str(unknown("topic_colum", ["topicColumn", "mode"])) == (
        "topic_colum: unknown option; did you mean topicColumn?"
    )
    assert str(unknown("zzz", ["a", "b"])) == "zzz: unknown option; known options are a, b"


def test_a_dataclass_declares_options_by_its_fields() -> None:
    """Fields made by ``option`` are options, with the annotation as type."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        size: int = option(5, least=1, doc="events")
        tags: dict[str, str] = option({})
        other: int = 0

    table = options_of(Config)
    assert list(table) == ["size", "tags"]
    assert (table["size"].default, table["size"].doc, table["size"].words()) == (
        5,
        "events",
        "a whole number, at least 1",
    )
    first, second = Config(), Config()
    assert first.tags is not second.tags
    check_all(first)
    with pytest.raises(ConfigError, match=r"^http\.size: must be"):
        check_all(Config(size=0), "http.")
