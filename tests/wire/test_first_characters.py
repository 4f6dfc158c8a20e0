"""With which bytes a match may begin."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.wire.first_characters import first_bytes

#: Patterns as people write them, and each kind of item that is known, or is not.
PATTERNS = [
    rb"\d{4}-",
    rb"^\[?\d+",
    rb"\A(?:INFO|WARN|[A-D]x)",
    rb"(?i)error",
    rb"(?i:e)rror",
    rb"(a)?(?(1)b|c)",
    rb"(?=a)\w",
    rb"(?!a)\w",
    rb"a*b",
    rb"(a*)b?c??d",
    rb"(?:|x)y",
    rb".x",
    rb"(?s).x",
    rb"[^\s\x80-\xff]a",
    rb"\xe4+",
    rb"\b\w",
    rb"(?>a|b)c",
    rb"a?+b",
    rb"(?x) a  # a comment",
]


@given(pattern=st.sampled_from(PATTERNS), line=st.binary(max_size=4) | st.text("abcdexy[1290-ERORINF ", max_size=8))
def test_what_matches_begins_as_is_said(pattern: bytes, line: bytes | str) -> None:
    """Whatever the pattern, no line that it matches is left out."""
    expression, data = re.compile(pattern), line.encode() if isinstance(line, str) else line
    if data and expression.match(data):
        assert first_bytes(expression)[data[0]] == 1


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
    """All of them where a match may be empty, or an item is not known."""
    assert bytes(byte for byte, may in enumerate(first_bytes(re.compile(pattern))) if may) == bytes_of
