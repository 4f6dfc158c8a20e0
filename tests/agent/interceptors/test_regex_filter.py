"""regex_filter."""

from __future__ import annotations

import pytest

from tests.agent.components import bodies, interceptor, lines, made_of_flume


@pytest.mark.parametrize(
    ("regex", "kept"),
    [
        ("INFO HTTP", ["x INFO HTTP y"]),
        ("^x", ["x INFO HTTP y", "x"]),
        ("(INFO.*)|(WARN.*)", ["x INFO HTTP y", "WARN"]),
        ("N$", ["WARN"]),
        (".*", ["x INFO HTTP y", "WARN", "x", ""]),
        ("nothing", []),
        (r"\p{Upper}{5}", []),
        (r"(?<level>WARN)\z", ["WARN"]),
    ],
)
@pytest.mark.parametrize("make", [lines, bodies])
def test_an_event_passes_if_its_body_matches_anywhere(make, regex, kept):
    """An event passes if its body matches anywhere; with excludeEvents if it does not."""
    all_bodies = ["x INFO HTTP y", "WARN", "x", ""]
    batch = make(*all_bodies)
    after = made_of_flume("interceptors", "regex_filter", regex=regex).intercept(batch)
    assert [body.decode() for body in after.bodies()] == kept
    excluded = made_of_flume("interceptors", "regex_filter", regex=regex, excludeEvents="true").intercept(batch)
    assert [body.decode() for body in excluded.bodies()] == [body for body in all_bodies if body not in kept]


def test_a_pattern_never_spans_two_lines():
    """Neither a literal nor a pattern matches across two lines."""
    batch = lines("a", "b")
    for regex in ("a\nb", r"a\sb", r"a[\s\S]b"):
        assert interceptor("regex_filter", regex=regex).intercept(batch).count == 0


def test_a_line_that_ends_with_cr_lf_is_matched_without_its_end():
    r"""A line that ends with \r\n is matched without its end."""
    assert interceptor("regex_filter", regex="a$").intercept(lines("a\r", "b\r")).bodies() == [b"a"]


def test_filtered_lines_stay_lines_and_the_block_is_the_same_object_if_no_event_is_dropped():
    """Filtered lines stay lines, and the block is the same object if no event is dropped."""
    batch = lines("a1", "a2", "b")
    assert interceptor("regex_filter", regex="a").intercept(batch).block == b"a1\na2\n"
    assert interceptor("regex_filter", regex=".").intercept(batch) is batch


def test_a_body_that_is_not_utf_8_is_matched_by_its_text_parts_and_passes_unchanged():
    """A body that is not UTF-8 is matched by its text parts, and passes unchanged."""
    batch = lines("a").with_bodies([b"\xff\xfe a"])
    assert interceptor("regex_filter", regex=r"\sa").intercept(batch).bodies() == [b"\xff\xfe a"]
