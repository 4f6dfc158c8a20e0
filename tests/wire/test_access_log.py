"""Access logs as columns: native code finds the same fields as the pattern, in any line."""

from array import array
from collections.abc import Callable, Sequence
from typing import TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from producer.wire import access_log
from producer.wire.access_log import FIELDS, parse_access_line
from producer.wire.text_column import SplitLines
from tests.wire.twins import TWINS, native

Split: TypeAlias = Callable[[bytes, bytes, bytes], SplitLines]

COMBINED = (
    '192.0.2.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326 "http://x/" "Mozilla (\\"é\\")"'
)

# Parts of a line, whole or in the wrong place.
_PARTS = st.sampled_from(
    [
        *(
            "a",
            "-",
            "www.x:80",
            "::1",
            "[t]",
            "[]",
            "[",
            "]",
            '"GET / HTTP/1.1"',
            '"GET /"',
            '"G\u00a0T / HTTP/"',
            '"-"',
        ),
        *('""', '"', "\\", '\\"', "200", "20", "-1", "7", "é", "\u00a0", "\u2003", "\x1c", "\t", "\r", "\0", " ", "  "),
        *('"_A b HTTP/."', '"GET a\x0bb"', '"GET  / HTTP/1.1"', "٣٣٣", "{", "<"),
    ]
)
_LINES = st.one_of(
    st.lists(_PARTS, max_size=14).map(" ".join),
    st.lists(_PARTS, max_size=14).map("".join),
    st.tuples(st.sampled_from(["", "h:1 ", "h:1:2 "]), st.lists(_PARTS, max_size=3).map(" ".join)).map(
        lambda parts: f"{parts[0]}{COMBINED} {parts[1]}"
    ),
    st.tuples(st.integers(0, 120), _PARTS).map(lambda cut: COMBINED[: cut[0]] + cut[1] + COMBINED[cut[0] :]),
)


def native_split(offsets: bytes, data: bytes, others: bytes) -> SplitLines:
    from producer.wire import _access_log

    return _access_log.split_access(offsets, data, others)


@pytest.fixture(scope="module", params=TWINS)
def split(request: pytest.FixtureRequest) -> Split:
    return access_log.split_access if request.param == "pure" else native_split


def columns_of(lines: Sequence[str], split: Split, others: bytes = b"") -> SplitLines:
    encoded = [line.encode() for line in lines]
    offsets = array("i", [0])
    for line in encoded:
        offsets.append(offsets[-1] + len(line))
    return split(offsets.tobytes(), b"".join(encoded), others)


def rows_of(found: SplitLines) -> list[dict[str, str] | None]:
    assert tuple(found.columns) == FIELDS
    rows: list[dict[str, str] | None] = []
    for row, known in enumerate(found.known):
        fields = {name: value for name in FIELDS if (value := found.columns[name][row]) is not None}
        assert known or not fields
        rows.append(fields if known else None)
    return rows


@native
@given(lines=st.lists(_LINES, max_size=20), others=st.sampled_from([b"", b"[", b"[{<"]))
@example(lines=[COMBINED, "", "x" * 9], others=b"[")
@example(lines=[f'h:1 {COMBINED} "x" "y"', f"h:1 {COMBINED}", f"{COMBINED} ", f'{COMBINED}"'], others=b"")
def test_both_twins_find_the_same(lines: list[str], others: bytes) -> None:
    """For any lines, native code returns the same bytes as the pure implementation."""
    one, other = (columns_of(lines, split, others) for split in (native_split, access_log.split_access))
    assert one.known == other.known
    assert [(n, c.sizes, c.data) for n, c in one.columns.items()] == [
        (n, c.sizes, c.data) for n, c in other.columns.items()
    ]


@given(lines=st.lists(_LINES, max_size=20))
def test_each_row_of_the_columns_has_the_fields_of_its_line_parsed_alone(split: Split, lines: list[str]) -> None:
    """Each row of the columns has the fields of its line parsed alone."""
    assert rows_of(columns_of(lines, split)) == [parse_access_line(line) for line in lines]


def test_line_that_begins_as_another_format_is_left_alone(split: Split) -> None:
    """A line whose first byte belongs to another parser is skipped."""
    lines = ['[x] - - [t] "GET / HTTP/1.1" 200 -', 'x - - [t] "GET / HTTP/1.1" 200 -']
    assert [row is None for row in rows_of(columns_of(lines, split, b"["))] == [True, False]
    assert [row is None for row in rows_of(columns_of(lines, split))] == [False, False]


def test_an_empty_column_of_lines_yields_empty_columns(split: Split) -> None:
    """An empty column of lines yields empty columns."""
    found = columns_of([], split)
    assert found.known == b""
    assert found.columns == {name: [] for name in FIELDS}
