"""Access logs as columns: the compiled twin finds what the pattern finds, in any line."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from producer.wire import access_log
from producer.wire.access_log import FIELDS, AccessLines, parse_access_line
from producer.wire.text_column import TextColumn
from tests.wire.twins import TWINS, native

Split: TypeAlias = Callable[[bytes, bytes, bytes], AccessLines]

COMBINED = (
    '192.0.2.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326 "http://x/" "Mozilla (\\"é\\")"'
)

# What a line is made of, whole or in the wrong place.
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


def native_split(offsets: bytes, data: bytes, others: bytes) -> AccessLines:
    from producer.wire import _access_log

    return _access_log.split_access(offsets, data, others)


@pytest.fixture(scope="module", params=TWINS)
def split(request: pytest.FixtureRequest) -> Split:
    """One twin, and then the other."""
    return access_log.split_access if request.param == "pure" else native_split


def columns_of(lines: Sequence[str], split: Split, others: bytes = b"") -> AccessLines:
    encoded = [line.encode() for line in lines]
    offsets = array("i", [0])
    for line in encoded:
        offsets.append(offsets[-1] + len(line))
    return split(offsets.tobytes(), b"".join(encoded), others)


def rows_of(found: AccessLines) -> list[dict[str, str] | None]:
    """The fields of each line, or None."""
    values = {name: values_of(column, len(found.known)) for name, column in zip(FIELDS, found.columns, strict=True)}
    rows: list[dict[str, str] | None] = []
    for row, known in enumerate(found.known):
        fields = {name: value for name in FIELDS if (value := values[name][row]) is not None}
        assert known or not fields
        rows.append(fields if known else None)
    return rows


def values_of(column: TextColumn, rows: int) -> list[str | None]:
    bounds = memoryview(column.offsets).cast("i")
    return [
        column.data[bounds[row] : bounds[row + 1]].decode() if column.validity[row >> 3] >> (row & 7) & 1 else None
        for row in range(rows)
    ]


@native
@given(lines=st.lists(_LINES, max_size=20), others=st.sampled_from([b"", b"[", b"[{<"]))
@example(lines=[COMBINED, "", "x" * 9], others=b"[")
@example(lines=[f'h:1 {COMBINED} "x" "y"', f"h:1 {COMBINED}", f"{COMBINED} ", f'{COMBINED}"'], others=b"")
def test_both_twins_find_the_same(lines: list[str], others: bytes) -> None:
    """For any lines the compiled twin returns the bytes that the pure one does."""
    assert columns_of(lines, native_split, others) == columns_of(lines, access_log.split_access, others)


@given(lines=st.lists(_LINES, max_size=20))
def test_columns_hold_what_is_found_line_by_line(split: Split, lines: list[str]) -> None:
    """Each row of the columns is what the line by itself comes to."""
    assert rows_of(columns_of(lines, split)) == [parse_access_line(line) for line in lines]


def test_line_that_begins_as_another_format_is_left_alone(split: Split) -> None:
    """A first byte that belongs to another parser keeps the line from being tried."""
    lines = ['[x] - - [t] "GET / HTTP/1.1" 200 -', 'x - - [t] "GET / HTTP/1.1" 200 -']
    assert [row is None for row in rows_of(columns_of(lines, split, b"["))] == [True, False]
    assert [row is None for row in rows_of(columns_of(lines, split))] == [False, False]


def test_no_lines_are_no_rows(split: Split) -> None:
    """Empty columns come out of an empty one."""
    found = columns_of([], split)
    assert found.known == b""
    assert found.columns == [TextColumn(b"", array("i", [0]).tobytes(), b"")] * len(FIELDS)
