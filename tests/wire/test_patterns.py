"""Patterns of users are Python's, and each search ends."""

from __future__ import annotations

import pickle
import re
import threading
import time
import warnings
from types import SimpleNamespace

import pytest

from producer.wire import patterns
from producer.wire.patterns import Pattern
from tests.runaway import ENDLESS, RUNAWAY

TEXTS = (
    *("", "a", "aa", "ab", "aaa", "a{e}", "${e}", "{e<=1}b", "[[:alpha:]]x", ":x", "a[b", "a{2", "a{,2}", "{}", "a\n"),
    *("a\nb", "A1_", "é1", "a--b", "&&", "a]b", "x{s}", "foo.bar", "1.2.3.4 - - [x]", "\u017f", "ß", "SS"),
)
_ALIKE = (
    # Syntax of ``regex`` alone: fuzzy matches, POSIX classes, nested sets.
    *("a{e}", "{e<=1}b", r"\$\{e}", "(?:ab){e<=1}", "x{s}", "{d}", "a{2", "a{,2}", "a{}", "a{,}", "(?#{e})a"),
    *("[[:alpha:]]x", "[[:alpha:]]", "[[]", "[]a]", "[^]a]", r"[\]\[]", "[a--b]", "[a&&b]", "[a||b]", "[a~~b]"),
    # Anchors, flags, cases.
    *(r"a\Z", "a$", "(?m)a$", "(?s).*", "(?i)k", "(?i)s", "(?i)ß", "(?i:A)b", "(?-i:a)", "(?a:\\w)", r"\bfoo\b"),
    *(r"(?x) a {2} # {e}", r"(?x)[ a]\ b", r"\x41|\u0061|\N{LATIN SMALL LETTER B}", r"[\b]", r"\101", r"[\0-\x20]"),
    # Groups, alternatives, repetitions.
    *("(a)|(b)", "(?P<n>a)(?P=n)", r"(a)\1", "(?:(a)|b)*", "(?>a|ab)b", "a++b", "a*?b", r"(?=a)\w", "(?<=a)b"),
    *("(?<!a)b", "(a)?(?(1)b|c)", "a{1,2}{2}", "(?:a{1,2}){2}", "", "|a", "(|a)+", "(a|b|)+?$", r"(?:\d{1,3}\.){3}\d"),
)


@pytest.mark.parametrize("flags", [0, re.ASCII, re.DOTALL])
@pytest.mark.parametrize("text", _ALIKE)
def test_each_search_and_replacement_finds_what_re_finds_even_for_syntax_of_regex(text: str, flags: int) -> None:
    """Each search and replacement finds what ``re`` finds, even for syntax of ``regex``; what ``re`` refuses is
    refused.
    """
    with warnings.catch_warnings(action="ignore"):
        try:
            python = re.compile(text, flags)
        except re.error:
            with pytest.raises(ValueError, match="is not a regular expression"):
                Pattern(text, flags, option="o")
            return
        pattern = Pattern(text, flags, option="o")
    for body in TEXTS:
        for name in ("match", "fullmatch", "search"):
            wanted, found = getattr(python, name)(body), getattr(pattern, name)(body)
            assert (wanted and (wanted.span(), wanted.groups())) == (found and (found.span(), found.groups())), body
        assert pattern.subn(r"<\g<0>>", body, ("", 0)) == python.subn(r"<\g<0>>", body), body
        assert pattern.split(body) == python.split(body), body


@pytest.mark.parametrize("text", ["(", "a**", r"\p{L}", "(?<n>a)", "(?<=a+)b", "(?P<n>a)(?P<n>b)", "(?R)", "[b-a]"])
def test_syntax_that_only_regex_supports_is_refused(text: str) -> None:
    """Syntax that only ``regex`` supports is refused."""
    for given in (text, text.encode()):
        with pytest.raises(ValueError, match=f"^{re.escape(repr(text))} is not a regular expression: "):
            Pattern(given, option="o")


def test_a_search_ends_at_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    """A runaway search ends after about a second of processor time, with a warning, and other threads run meanwhile."""
    beats, done = list[float](), threading.Event()

    def beat() -> None:
        while not done.wait(0.01):
            beats.append(time.monotonic())

    thread = threading.Thread(target=beat)
    thread.start()
    began = time.process_time()
    assert Pattern(RUNAWAY, option="regex", outcome="it is kept").search(ENDLESS, at_limit="kept") == "kept"
    took = time.process_time() - began
    done.set()
    thread.join()
    assert took < 3 * patterns.SECONDS
    assert len(beats) > 10
    (line,) = caplog.messages
    assert line.startswith(f"regex: a search with {RUNAWAY!r} took more than 1 s of processor time")
    assert line.endswith(
        "for a text of 101 characters, and was ended: it is kept."
        " Make its repetitions possessive, such as (?:a++)+, or bounded, such as a{1,100}"
    )


def test_each_way_to_search_ends(quick_limit: None, caplog: pytest.LogCaptureFixture) -> None:
    """Every kind of search ends at the limit; other texts are searched, with one warning in ten seconds."""
    pattern, whole = Pattern(RUNAWAY, option="o"), Pattern(RUNAWAY[:-1], option="o")
    assert [bool(found) for found in pattern.search_all(["aa", ENDLESS, "b", "aa"])] == [True, False, False, True]
    assert [bool(found) for found in pattern.match_all([ENDLESS, "aa"])] == [False, True]
    assert [bool(found) for found in whole.fullmatch_all(["aa", ENDLESS])] == [True, False]
    assert pattern.subn("x", ENDLESS, ("limit", 0)) == ("limit", 0)
    assert pattern.split(ENDLESS) == [ENDLESS]
    assert Pattern(RUNAWAY.encode(), option="o").match(ENDLESS.encode(), at_limit=7) == 7
    assert len(caplog.messages) == 3


def test_a_search_that_runs_out_of_memory_ends_as_one_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that runs out of memory ends as one that takes too long."""
    pattern = Pattern("a", option="o")

    def search(text: str, **_limits: object) -> None:
        raise MemoryError

    monkeypatch.setattr(pattern, "_regex", SimpleNamespace(search=search))
    assert pattern.search("a", at_limit="ended") == "ended"


def test_a_pattern_goes_to_another_process() -> None:
    """A pattern is pickled, and compiled again in the other process."""
    pattern = pickle.loads(pickle.dumps(Pattern(b"a.b", re.DOTALL, option="o")))
    assert pattern.fullmatch(b"a\nb")
