"""search_replace."""

from __future__ import annotations

import pytest

from producer.agent import AgentConfigError
from tests.agent.components import bodies, interceptor, lines, made_of_flume


@pytest.mark.parametrize(
    ("pattern", "replacement", "body", "after"),
    [
        ("^prefix", "", "prefix non-prefix suffix", " non-prefix suffix"),
        ("^([A-Za-z]+)=(\\d+)", "$2=$1", "abc=12 x", "12=abc x"),
        ("cost", "\\$5 \\\\", "the cost", "the $5 \\"),
        ("é", "e", "été", "ete"),
        ("(?<a>b)", "${a}${a}", "abc", "abbc"),
    ],
)
@pytest.mark.parametrize("make", [lines, bodies])
def test_all_matches_are_replaced_with_javas_references_to_groups_in_flumes_files(
    make, pattern, replacement, body, after
):
    """All matches are replaced, with Java's references to groups in Flume's files."""
    options = {"searchPattern": pattern, "replaceString": replacement, "charset": "UTF-8"}
    made = made_of_flume("interceptors", "search_replace", **options)
    assert made.intercept(make(body, "other", k="v")).bodies() == [after.encode(), b"other"]


def test_a_batch_in_which_nothing_is_found_is_the_same():
    """A block without a match is passed on as it is."""
    batch = lines("a", "b")
    assert interceptor("search_replace", search_pattern="x").intercept(batch) is batch


def test_lines_stay_lines_unless_a_replacement_breaks_them():
    r"""Lines stay lines; a body that gets a \n or \r stays one event."""
    batch = lines("a b", "c")
    kept = interceptor("search_replace", search_pattern=" ", replace_string="").intercept(batch)
    assert (kept.ends, kept.block) == (None, b"ab\nc\n")
    for broken in ("\n", "\r"):
        after = interceptor("search_replace", search_pattern="b", replace_string=broken).intercept(batch)
        assert after.bodies() == [f"a {broken}".encode(), b"c"]


def test_bytes_that_are_not_utf_8_pass_a_replacement_unchanged():
    """Bytes that are not UTF-8 pass a replacement unchanged."""
    batch = lines("x").with_bodies([b"\xffa\xc3"])
    assert interceptor("search_replace", search_pattern="a", replace_string="b").intercept(batch).bodies() == [
        b"\xffb\xc3"
    ]


def test_a_replacement_that_cannot_work_is_refused():
    """A reference to a missing group is a configuration error."""
    with pytest.raises(AgentConfigError, match=r"replace_string: must be a replacement: invalid group reference"):
        interceptor("search_replace", search_pattern="a", replace_string=r"\1")
