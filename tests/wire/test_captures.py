"""Steps of patterns find what ``re`` finds, or leave the search to it."""

import re
import time
from array import array
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from producer.wire.captures import first_bytes, steps_of
from producer.wire.patterns import Pattern

_ABSENT = 0xFFFFFFFF
_compiled = pytest.mark.skipif(steps_of(Pattern("a", option="p"), []) is None, reason="nothing is compiled")


def _texts(sizes: bytes, raw: bytes) -> list[str | None]:
    at = 0
    return [None if size == _ABSENT else raw[at : (at := at + size)].decode() for size in array("I", sizes)]


def _found(
    pattern: Pattern[str], bodies: list[bytes], *, whole: bool = False
) -> list[tuple[str | None, ...] | None] | None:
    """Return the groups of each body, None if it needs a search; None for a pattern without steps."""
    steps = steps_of(pattern, range(1, pattern.groups + 1), whole=whole)
    if steps is None:
        return None
    ends = array("Q", accumulate(map(len, bodies))).tobytes()
    found, columns = steps.capture(len(bodies), ends, b"".join(bodies))
    rows = list(zip(*[_texts(*column) for column in columns], strict=True)) or [()] * len(bodies)
    assert all(row == (None,) * pattern.groups for row, known in zip(rows, found, strict=True) if not known)
    return [row if known else None for row, known in zip(rows, found, strict=True)]


_CHARACTERS = "ab \n-"
_SINGLE = st.sampled_from(["a", "b", " ", "-", ".", "[^a]", "[ab]", r"\S", r"\s", r"\w", "[^ab]", "A"])
_RUN = st.builds(
    "{}{}{}".format,
    _SINGLE,
    st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}"]),
    st.sampled_from(["", "", "?"]),
)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    rows = st.lists(inner, min_size=1, max_size=4).map("".join)
    return st.one_of(
        rows.map("({})".format),
        rows.map("(?:{})?".format),
        st.builds("({}|{})".format, rows, rows),
        st.builds("(?:{}|{}|{})".format, rows, rows, rows),
        rows,
    )


_PATTERNS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "^", "(?i)", r"(?s)\A"]),
    st.lists(st.recursive(st.one_of(_SINGLE, _RUN), _larger, max_leaves=8), min_size=1, max_size=5).map("".join),
    st.sampled_from(["", "$", r"\Z"]),
)


@_compiled
@example("^([ab]+)(?:c(d))?(.*)$", ["abce"], re.ASCII, False)  # An optional part matches before the run takes less.
@example("^([ab]+)(cd|ab|c)(.*)$", ["abce"], re.ASCII, False)
@example("^(a*)(?:a|(b))[bc]$", ["aab"], re.ASCII, False)  # The last alternative does not take part, as it did before.
@example("([^b]*?)$", ["a\n"], re.ASCII, False)  # The end is also before the last newline.
@example("([^b]*?)a$", ["aa\n"], re.ASCII, False)
@example("(?s)(.*?).$", ["a\n\n"], re.DOTALL, False)
@given(
    _PATTERNS,
    st.lists(st.text(_CHARACTERS, max_size=12), min_size=1, max_size=8),
    st.sampled_from([re.ASCII, re.DOTALL]),
    st.booleans(),
)
def test_native_steps_find_the_groups_of_re_or_leave_the_body_to_it(
    text: str, bodies: list[str], flags: re.RegexFlag, whole: bool
) -> None:
    """For any pattern and bodies, steps find the groups of ``re``, or leave the body to it."""
    pattern = re.compile(text, flags)
    found = _found(Pattern(text, flags, option="p"), [body.encode() for body in bodies], whole=whole) or []
    for body, groups in zip(bodies, found, strict=False):
        if groups is not None:
            match = pattern.fullmatch(body) if whole else pattern.search(body)
            assert match is not None, (text, body)
            assert match.groups() == groups, (text, body)


_COMBINED = '192.0.2.1 - bob [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326 "http://a/" "Mozilla (X11)"'


@_compiled
@pytest.mark.parametrize(
    ("pattern", "body"),
    [
        (r'^(\S+) \S+ (\S+) \[([^]]+)\] "([^"]*)" (\d+) (\d+|-) "(.*)" "(.*)"$', _COMBINED),
        (r'^(\S+) (\S+) (\S+) \[([\w:/]+\s[+\-]\d{4})\] "(\S+)\s?(\S+)?\s?(\S+)?" (\d{3}|-) (\d+|-)', _COMBINED),
        (r'^(.*?) .*? \[(.*?)\] "(.*?)" (\d+) (\d+)(?: "(.*?)" "(.*?)")?$', _COMBINED),
        (r"\[(.*)\] \"(.*)\" (\d+)", _COMBINED),
        (r'"(?P<method>[A-Z]+) (?P<path>[^ "]++)', _COMBINED),
        (r"^\[(.+?)\] \[(\w+)\] (?:\[client ([\d.]+)\] )?(.*)", "[Sun Dec 04 2005] [error] [client 1.2.3.4] no"),
        (r"^\[(.+?)\] \[(\w+)\] (?:\[client ([\d.]+)\] )?(.*)", "[Sun Dec 04 2005] [notice] mod_jk done"),
        (r"^(\w{3} +\d+ [\d:]+) (\S+) (\w+)\[(\d+)\]: (.*)$", "Dec 10 06:55:46 LabSZ sshd[24200]: Invalid user"),
        (r"(INFO|WARN|ERROR) (\S+?): (.*)", "17/06/09 20:10:40 INFO storage.Block: Found block"),
        (r"(?i)user=(\w+)", "2020 login USER=bob from"),
    ],
)
def test_native_steps_run_patterns_of_usual_lines(pattern: str, body: str) -> None:
    """Common patterns for access logs, syslog and log4j are run by native code."""
    compiled = Pattern(pattern, re.ASCII, option="p")
    match = compiled.search(body)

    assert match is not None
    assert _found(compiled, [body.encode()]) == [match.groups()]


@_compiled
@pytest.mark.parametrize("text", [r"(?P<level>\w+)(?: \[(?P<thread>\w+)\])? (?P<message>.*)", r"(\S+) (?:- )?(.*)$"])
def test_native_steps_match_whole_bodies_with_the_flags_of_text(text: str) -> None:
    """Steps match as ``fullmatch`` does; bodies with letters beyond ASCII are left to ``re``."""
    pattern = Pattern(text, re.DOTALL, option="p")
    bodies = [b"INFO [main] a\nb\n", b"WARN [1] x", "INFO \u00e9".encode()]

    matches = [pattern.fullmatch(body.decode()) for body in bodies[:2]]
    assert _found(pattern, bodies, whole=True) == [*[match and match.groups() for match in matches], None]


@_compiled
def test_native_steps_leave_bodies_without_a_match_or_beyond_ascii_to_a_search() -> None:
    """Steps leave bodies without a match, or beyond ASCII, to a search."""
    assert _found(Pattern(r"^(\d+) x", re.ASCII, option="p"), [b"12 x", b"no", b"1 x \xc3\xa9", b"", b"7 xy"]) == [
        ("12",),
        None,
        None,
        None,
        ("7",),
    ]


@_compiled
def test_native_steps_end_lines_before_their_ends() -> None:
    """Without ends, bodies are lines, without a carriage return before the line end."""
    steps = steps_of(Pattern("(.*)$", re.ASCII, option="p"), [1])

    assert steps is not None
    assert steps.capture(3, b"", b"a\r\n\nbc\n").columns == [(array("I", [1, 0, 2]).tobytes(), b"abc")]


@_compiled
def test_native_steps_read_nothing_outside_the_bodies() -> None:
    """Lines beyond the data, and ends after its last byte, are empty bodies."""
    steps = steps_of(Pattern("(x?)", re.ASCII, option="p"), [1])

    assert steps is not None
    assert steps.capture(4, b"", b"x\nx").columns == [(array("I", [1, 1, 0, 0]).tobytes(), b"xx")]
    ends = array("Q", [1, 99, 0]).tobytes()
    assert steps.capture(3, ends, b"xx").columns == [(array("I", [1, 0, 0]).tobytes(), b"x")]


@pytest.mark.parametrize(
    "pattern", [r"(a)\1", "a(?=b)", "(?:ab)+", r"\ba", "a^b", "(?m)^a$", "(a*?)(?:bb|cc)", "(?:a*)?"]
)
def test_other_patterns_are_left_to_re(pattern: str) -> None:
    """A pattern that steps cannot express has none."""
    assert steps_of(Pattern(pattern, re.ASCII, option="p"), []) is None


@_compiled
def test_native_steps_with_too_much_backtracking_leave_the_body_to_a_search() -> None:
    """Steps with too much backtracking leave the body to a search."""
    body = b"x" * 200_000
    steps, ends = steps_of(Pattern("^(.*)x(.*)y$", option="p"), [1, 2]), array("Q", [len(body)]).tobytes()

    assert steps is not None
    began = time.thread_time()
    assert steps.capture(1, ends, body).found == b"\0"
    assert time.thread_time() - began < 2  # All ways to divide the text would take minutes.


@given(
    pattern=st.sampled_from(
        [
            rb"\d{4}-",
            rb"^\[?\d+",
            rb"\A(?:INFO|WARN|[A-D]x)",
            rb"(?i)error",
            rb"(?i:e)rror",
            rb"(a)?(?(1)b|c)",
            rb"(?=a)\w",
            rb"a*b",
            rb"(a*)b?c??d",
            rb"(?:|x)y",
            rb"(?s).x",
            rb"[^\s\x80-\xff]a",
            rb"\xe4+",
            rb"\b\w",
            rb"(?>a|b)c",
            rb"a?+b",
            rb"(?:a|\d)?b|c",
            rb"(?x) a  # a comment",
        ]
    ),
    line=st.binary(max_size=4) | st.text("abcdexy[1290-ERORINF ", max_size=8).map(str.encode),
)
def test_for_any_pattern_each_line_that_it_matches_begins_with_one_of_its_first_bytes(
    pattern: bytes, line: bytes
) -> None:
    """For any pattern, each line that it matches begins with one of its first bytes."""
    if line and re.match(pattern, line):
        assert first_bytes(Pattern(pattern, option="p"))[line[0]] == 1


@pytest.mark.parametrize(
    ("pattern", "bytes_of"),
    [
        (rb"^\d{4}-", b"0123456789"),
        (rb"(?i)error", b"Ee"),
        (rb"a*(?:b|c)d", b"abc"),
        (rb"\xe4x", b"\xe4"),
        (rb"a*", bytes(range(256))),
        (rb"(?=a)b", bytes(range(256))),
    ],
)
def test_bytes_that_cannot_begin_a_match_are_left_out(pattern: bytes, bytes_of: bytes) -> None:
    """Bytes that cannot begin a match are excluded, unless a match may be empty or an item is unknown."""
    assert bytes(byte for byte, may in enumerate(first_bytes(Pattern(pattern, option="p"))) if may) == bytes_of
