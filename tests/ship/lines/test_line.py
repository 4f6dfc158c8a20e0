"""Every byte is in exactly one line, by the documented rules, however a file is divided."""

from __future__ import annotations

import codecs
import io
import itertools
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from producer.ship.lines import line as lines
from producer.ship.lines.line import Block, Line, blocks_of, without_mark

_CONTENT = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"word", b"\xff", "é".encode(), "日本".encode(), b"\0", b""]),
    max_size=40,
).map(b"".join)


def read(
    content: bytes, start: int = 0, end: int | None = None, *, limit: int | None = None, longest: int = 1000
) -> list[Line]:
    return single_lines(blocks_of(io.BytesIO(content), start, end, limit=limit, max_line_bytes=longest))


def single_lines(read: Iterable[Block | Line]) -> list[Line]:
    return [line for each in read for line in (each.lines() if isinstance(each, Block) else [each])]


def simple_lines(content: bytes) -> list[Line]:
    """Split lines by the documented rules, in the simplest way."""
    pieces = content.split(b"\n")
    offsets = [sum(len(piece) + 1 for piece in pieces[:index]) for index in range(len(pieces))]
    ended = [piece.removesuffix(b"\r") for piece in pieces[:-1]]
    found = [Line(offset, 0, data) for offset, data in zip(offsets, ended, strict=False)]
    return [*found, Line(offsets[-1], 0, pieces[-1])] if pieces[-1] else found


@pytest.fixture(params=[1, 3, 1 << 20], ids=["one byte", "three bytes", "a megabyte"])
def read_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(lines, "READ_BYTES", request.param)
    return request.param


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"", [], id="an empty file has no line"),
        pytest.param(b"\n", [b""], id="an empty line is a line"),
        pytest.param(b"a\n\nb\n", [b"a", b"", b"b"], id="empty lines count"),
        pytest.param(b"a\r\nb\r\n", [b"a", b"b"], id="CR LF ends a line"),
        pytest.param(b"a\rb\n", [b"a\rb"], id="a lone CR is a byte"),
        pytest.param(b"a\r\r\n", [b"a\r"], id="only one CR belongs to the end"),
        pytest.param(b"a\nb", [b"a", b"b"], id="a last line without an end"),
        pytest.param(b"a\nb\r", [b"a", b"b\r"], id="a final CR without LF stays"),
        pytest.param(b"\xff\xfe\n\0\n", [b"\xff\xfe", b"\0"], id="bytes that are not text stay"),
    ],
)
@pytest.mark.usefixtures("read_bytes")
def test_line_rule(content: bytes, expected: list[bytes]) -> None:
    """Each documented rule holds, at whatever offset the file is divided."""
    assert [line.data for line in read(content)] == expected


@given(content=_CONTENT, cuts=st.lists(st.integers(0, 200), max_size=8), chunk=st.integers(1, 50))
@example(content=b"a\n\n\nb", cuts=[1, 2, 3], chunk=1)
def test_adjacent_ranges_share_every_line_out_exactly_once(content: bytes, cuts: list[int], chunk: int) -> None:
    """For any bytes and cuts, the ranges together yield each line once, in order, with its offset."""
    bounds = sorted({0, len(content), *(cut for cut in cuts if cut < len(content))})
    ranges = list(itertools.pairwise(bounds))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "READ_BYTES", chunk)
        found = [line for start, end in ranges for line in read(content, start, end)]
    assert found == simple_lines(content)


@given(content=_CONTENT, longest=st.integers(4, 12), chunk=st.integers(1, 30))
def test_pieces_of_long_lines_join_to_the_line(content: bytes, longest: int, chunk: int) -> None:
    """For any bytes and limit, no piece exceeds the limit, and the joined pieces are the line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "READ_BYTES", chunk)
        found = read(content, longest=longest)
    joined: dict[int, bytes] = {}
    for line in found:
        assert len(line.data) <= longest
        joined[line.offset] = joined.get(line.offset, b"") + line.data
    assert [Line(offset, 0, data) for offset, data in joined.items()] == simple_lines(content)


@given(content=_CONTENT, longest=st.integers(4, 12), chunk=st.integers(1, 30))
def test_pieces_do_not_depend_on_how_the_file_is_read(content: bytes, longest: int, chunk: int) -> None:
    """A retry with other buffer sizes cuts long lines at the same offsets, so duplicates can be recognised."""
    whole = read(content, longest=longest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "READ_BYTES", chunk)
        assert read(content, longest=longest) == whole


def test_pieces_are_cut_between_characters() -> None:
    """A long line of valid UTF-8 yields pieces of valid UTF-8."""
    found = read(("x" + "日本語" * 10).encode(), longest=8)
    assert "".join(line.data.decode() for line in found) == "x" + "日本語" * 10
    assert [line.part for line in found] == list(range(1, len(found) + 1))


@pytest.mark.parametrize("chunk", range(1, 30))
def test_a_line_of_exactly_the_limit_stays_whole(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line as long as the limit is not cut, with LF or CR LF, wherever a read ends."""
    monkeypatch.setattr(lines, "READ_BYTES", chunk)
    assert read(b"12345678\r\n12345678\n12345678", longest=8) == [
        Line(0, 0, b"12345678"),
        Line(10, 0, b"12345678"),
        Line(19, 0, b"12345678"),
    ]


@given(content=_CONTENT, start=st.integers(0, 100), cuts=st.lists(st.integers(0, 200), max_size=4))
@example(content=b"a\nunfinished more\nb\n", start=12, cuts=[14])
def test_a_range_that_begins_a_line_yields_all_bytes_from_there_on_however_it_is_divided(
    content: bytes, start: int, cuts: list[int]
) -> None:
    """A range that begins a line yields all bytes from there on, however it is divided."""
    start = min(start, len(content))
    bounds = sorted({start, len(content), *(cut for cut in cuts if start < cut < len(content))})
    found = [
        line
        for first, end in itertools.pairwise(bounds)
        for line in single_lines(
            blocks_of(io.BytesIO(content), first, end, limit=None, max_line_bytes=1000, begins_line=first == start)
        )
    ]
    assert found == [line._replace(offset=line.offset + start) for line in simple_lines(content[start:])]


def test_bytes_appended_after_the_plan_are_left_to_the_next_job_even_within_a_line() -> None:
    """Bytes appended after the plan are left to the next job, even within a line."""
    assert [line.data for line in read(b"one\ntwo\nthree\n", limit=6)] == [b"one", b"tw"]
    assert read(b"one\ntwo\n", 4, 8, limit=4) == []


@given(content=_CONTENT, size=st.integers(0, 12))
def test_a_search_from_line_end_to_line_end_finds_the_same_longer_lines_as_a_check_of_each_line(
    content: bytes, size: int
) -> None:
    """A search from line end to line end finds the same longer lines as a check of each line."""
    assert Block(0, content).has_longer(size) == any(len(each) > size for each in content.split(b"\n"))


@given(
    st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 3, 4, 5, 30]), st.binary(max_size=9)), max_size=8),
    st.sampled_from([1, 2, 5, 7, 1 << 20]),
    st.integers(1, 40),
)
def test_a_hole_before_a_line_is_skipped_wherever_the_file_is_cut(
    written: list[tuple[int, bytes]], read_bytes: int, cut: int
) -> None:
    """Four or more NULs before a line are skipped; each line is in one range, with its own offset."""
    content, expected = b"", []
    for nuls, raw in written:
        text = raw.replace(b"\n", b"").replace(b"\0", b"").replace(b"\r", b"")
        kept = b"\0" * nuls if nuls < 4 else b""
        expected.append((len(content) + nuls - len(kept), kept + text))
        content += b"\0" * nuls + text + b"\n"
    content += b"\0" * 9
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "READ_BYTES", read_bytes)
        found = [
            each
            for start in range(0, len(content), cut)
            for each in read(content, start, min(start + cut, len(content)))
        ]
    assert [(each.offset, each.data) for each in found] == expected


def test_a_byte_order_mark_is_removed_from_a_block_and_from_a_line_in_pieces() -> None:
    """A byte order mark is removed from a block, and from a line in pieces; a file with only the mark has no line."""
    mark = codecs.BOM_UTF8
    assert list(without_mark([Block(0, mark + b"a\n"), Block(5, mark)])) == [
        Block(3, b"a\n"),
        Block(5, mark),
    ]
    pieces = [Line(0, 1, mark + b"a"), Line(0, 2, b"b"), Line(6, 0, mark)]
    assert list(without_mark(pieces)) == [Line(3, 1, b"a"), Line(3, 2, b"b"), Line(6, 0, mark)]
    assert list(without_mark([Block(0, mark)])) == []
