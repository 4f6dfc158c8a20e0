"""Java's regular expressions in Python."""

from __future__ import annotations

import pytest

from producer.agent.config import parse_toml
from producer.agent.interceptors.patterns import compiled
from producer.agent.run.blueprint import draw
from producer.model.errors import ConfigError


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"\Qa.b\E+", "xa.bb", "a.bb"),
        (r"\Qa(", "a(", "a("),
        (r"[\p{Alpha}_]+", "12ab_3", "ab_"),
        (r"\P{Digit}+", "12ab", "ab"),
        (r"(?<year>\d{4})-(?<!x)\d", "2020-1", "2020-1"),
        (r"\\p{2}", "\\pp", "\\pp"),
        (r"[(?<a>]+", "(?<a>", "(?<a>"),
        (r"a\z", "a\n", None),
        (r"\h+b", "\t b", "\t b"),
        (r"\w+", "éa", "a"),
        (r"(a++)b", "aab", "aab"),
    ],
)
def test_javas_own_notation_is_understood(pattern, text, found):
    """What Java writes otherwise than Python means what it means in Java; what only looks like it is left alone."""
    match = compiled("regex", pattern).search(text)
    assert (match and match[0]) == found


@pytest.mark.parametrize("pattern", [r"\p{Han}", r"[^\P{Alpha}]", "a{2,1}", "(?<!a+)b"])
def test_what_is_not_understood_is_refused(pattern):
    """A pattern that would mean something else here is an error that names the option."""
    with pytest.raises(ConfigError, match="regex: must be a regular expression"):
        compiled("regex", pattern)


@pytest.mark.parametrize(
    "pattern", [r"^(a+)+$", r"(?:\w+\s*)*x", r"(.*,)*x", r"((a*))*", r"(?:x|a+)+", r"x(?:(?P<n>\d+)+)?", r"(?:a+b?)+"]
)
def test_a_pattern_that_may_take_for_ever_is_told(pattern):
    """A repetition in a repetition that one text fits in many ways: nothing can end such a search."""
    config = parse_toml(_WITH_FILTER.replace("PATTERN", pattern))
    (note,) = draw(config).notes
    assert note.startswith("line 6: sources.s.interceptors.regex_filter: regex: a repetition in a repetition")


def test_a_beginning_of_events_that_may_take_for_ever_is_told(tmp_path):
    """Likewise where ``taildir`` looks for the first lines of events."""
    (tmp_path / "a.log").touch()
    source = f"""type = "taildir"\npaths = ["{tmp_path}/*.log"]\nmultiline_start = '(?:[0-9]+-?)+T'"""
    (note,) = draw(parse_toml(_WITH_FILTER.replace('type = "sequence"', source))).notes
    assert note.startswith("line 2: sources.s: multiline_start: a repetition in a repetition")


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?:a++)+$",
        r"(?:[^,]*,)*x",
        r"(?>a+)+",
        r"(?:\s\w+)*",
        r"^(\S+) \[([^\]]+)\] (.*)$",
        r"(?:a+){1,3}",
        r"(ab|c)*",
    ],
)
def test_usual_patterns_are_not_suspected(pattern):
    """Who is warned of everything heeds nothing."""
    assert draw(parse_toml(_WITH_FILTER.replace("PATTERN", pattern))).notes == ()


_WITH_FILTER = """
[sources.s]
type = "sequence"
channels = ["c"]

[[sources.s.interceptors]]
type = "regex_filter"
regex = '''PATTERN'''
[channels.c]
type = "memory"
[sinks.k]
type = "null"
channel = "c"
"""
