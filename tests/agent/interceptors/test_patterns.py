"""Java's regular expressions in Python."""

from __future__ import annotations

import pytest

from producer.agent.interceptors.patterns import compiled
from producer.model.errors import ConfigError
from tests.agent.components import headers, interceptor, lines
from tests.runaway import ENDLESS, RUNAWAY


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
def test_javas_syntax_has_javas_meaning_text_that_only_looks_like_it_is_unchanged(pattern, text, found):
    """Java's syntax has Java's meaning; text that only looks like it is unchanged."""
    match = compiled("regex", pattern).search(text)
    assert (match and match[0]) == found


@pytest.mark.parametrize("pattern", [r"\p{Han}", r"[^\P{Alpha}]", "a{2,1}", "(?<!a+)b"])
def test_a_pattern_that_would_have_another_meaning_is_refused_with_the_options_name(pattern):
    """A pattern that would have another meaning is refused with the option's name."""
    with pytest.raises(ConfigError, match="regex: must be a regular expression"):
        compiled("regex", pattern)


@pytest.mark.parametrize(
    ("name", "options", "after"),
    [
        ("regex_filter", {"regex": RUNAWAY}, [(ENDLESS, {"a": ENDLESS, ENDLESS: "1"})]),
        ("regex_filter", {"regex": RUNAWAY, "exclude_events": True}, [(ENDLESS, {"a": ENDLESS, ENDLESS: "1"})]),
        ("regex_extractor", {"regex": f"(?P<g>{RUNAWAY})"}, [(ENDLESS, {"a": ENDLESS, ENDLESS: "1"})]),
        ("search_replace", {"search_pattern": RUNAWAY}, [(ENDLESS, {"a": ENDLESS, ENDLESS: "1"})]),
        ("redact", {"patterns": [RUNAWAY], "headers": ["a"]}, [("***", {"a": "***", ENDLESS: "1"})]),
        ("remove_header", {"matching": RUNAWAY[:-1]}, [(ENDLESS, {})]),
    ],
)
def test_a_pattern_that_runs_away_ends_and_no_event_is_lost(quick_limit, caplog, name, options, after):
    """At the limit of a search no event is lost: a text to hide or remove is hidden or removed, and others are kept.

    The log has the option's name.
    """
    batch = lines(ENDLESS, a=ENDLESS, **{ENDLESS: "1"})
    done = interceptor(name, **options).intercept(batch)
    assert [(body.decode(), each) for body, each in zip(done.bodies(), headers(done), strict=True)] == after
    assert caplog.messages[0].startswith(f"{next(iter(options))}: a search with")
