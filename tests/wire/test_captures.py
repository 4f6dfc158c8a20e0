"""captures: whatever the steps find is what ``re`` finds, and what they do not know they leave to it."""

import re
from array import array
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from producer.wire.captures import steps_of

_ABSENT = 0xFFFFFFFF
_compiled = pytest.mark.skipif(steps_of(re.compile("a", re.ASCII), []) is None, reason="nothing is compiled")


def _texts(sizes: bytes, raw: bytes) -> list[str | None]:
    at = 0
    return [None if size == _ABSENT else raw[at : (at := at + size)].decode() for size in array("I", sizes)]


def _found(
    pattern: re.Pattern[str], bodies: list[bytes], *, whole: bool = False
) -> list[tuple[str | None, ...] | None] | None:
    """The groups of each body; None where ``re`` has to be asked. None for a pattern without steps."""
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
@example("^([ab]+)(?:c(d))?(.*)$", ["abce"], re.ASCII, False)  # what may be left out is, before the run takes less
@example("^([ab]+)(cd|ab|c)(.*)$", ["abce"], re.ASCII, False)
@example("^(a*)(?:a|(b))[bc]$", ["aab"], re.ASCII, False)  # the last alternative takes no part, as it did before
@example("([^b]*?)$", ["a\n"], re.ASCII, False)  # the end is also before the last newline
@example("([^b]*?)a$", ["aa\n"], re.ASCII, False)
@example("(?s)(.*?).$", ["a\n\n"], re.DOTALL, False)
@given(
    _PATTERNS,
    st.lists(st.text(_CHARACTERS, max_size=12), min_size=1, max_size=8),
    st.sampled_from([re.ASCII, re.DOTALL]),
    st.booleans(),
)
def test_what_native_steps_find_is_what_re_finds(
    text: str, bodies: list[str], flags: re.RegexFlag, whole: bool
) -> None:
    """Of any pattern and any bodies, anywhere in them or as a whole: the same groups, or nothing is said."""
    pattern = re.compile(text, flags)
    found = _found(pattern, [body.encode() for body in bodies], whole=whole) or []
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
    """What people write for access logs, syslog and log4j is run by compiled code."""
    compiled = re.compile(pattern, re.ASCII)
    match = compiled.search(body)

    assert match is not None
    assert _found(compiled, [body.encode()]) == [match.groups()]


@_compiled
@pytest.mark.parametrize("text", [r"(?P<level>\w+)(?: \[(?P<thread>\w+)\])? (?P<message>.*)", r"(\S+) (?:- )?(.*)$"])
def test_native_steps_match_whole_bodies_with_the_flags_of_text(text: str) -> None:
    """As ``fullmatch`` does, also where letters are not ASCII's alone: such bodies are left to ``re``."""
    pattern = re.compile(text, re.DOTALL)
    bodies = [b"INFO [main] a\nb\n", b"WARN [1] x", "INFO \u00e9".encode()]

    matches = [pattern.fullmatch(body.decode()) for body in bodies[:2]]
    assert _found(pattern, bodies, whole=True) == [*[match and match.groups() for match in matches], None]


@_compiled
def test_native_steps_say_what_they_do_not_know() -> None:
    """A body that does not match, or has other characters than ASCII's."""
    assert _found(re.compile(r"^(\d+) x", re.ASCII), [b"12 x", b"no", b"1 x \xc3\xa9", b"", b"7 xy"]) == [
        ("12",),
        None,
        None,
        None,
        ("7",),
    ]


@_compiled
def test_native_steps_end_lines_before_their_ends() -> None:
    """Of lines no end is told, and a return before it is no part of them."""
    steps = steps_of(re.compile("(.*)$", re.ASCII), [1])

    assert steps is not None
    assert steps.capture(3, b"", b"a\r\n\nbc\n").columns == [(array("I", [1, 0, 2]).tobytes(), b"abc")]


@_compiled
def test_native_steps_read_nothing_outside_the_bodies() -> None:
    """More lines than there are, and ends behind the last byte: such bodies are empty."""
    steps = steps_of(re.compile("(x?)", re.ASCII), [1])

    assert steps is not None
    assert steps.capture(4, b"", b"x\nx").columns == [(array("I", [1, 1, 0, 0]).tobytes(), b"xx")]
    ends = array("Q", [1, 99, 0]).tobytes()
    assert steps.capture(3, ends, b"xx").columns == [(array("I", [1, 0, 0]).tobytes(), b"x")]


@pytest.mark.parametrize(
    "pattern", [r"(a)\1", "a(?=b)", "(?:ab)+", r"\ba", "a^b", "(?m)^a$", "(a*?)(?:bb|cc)", "(?:a*)?"]
)
def test_other_patterns_are_left_to_re(pattern: str) -> None:
    """What cannot be written as steps has none."""
    assert steps_of(re.compile(pattern, re.ASCII), []) is None
