"""Chunks do not depend on how lines are read, and are numbered by offset."""

from __future__ import annotations

import io
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.ship.lines import line as lines
from producer.ship.lines.chunks import Chunk, chunks_of
from producer.ship.lines.line import Block, Line, blocks_of
from producer.ship.lines.log_start import start_pattern
from producer.ship.lines.logs import logs_of

from .test_logs import _CONTENT


def read(content: bytes, *, longest: int, start: int = 0, logs: bool) -> list[Chunk]:
    file = io.BytesIO(content)
    if logs:
        pattern = start_pattern(r"\d")
        return list(chunks_of(logs_of(file, start, None, limit=None, max_log_bytes=longest, pattern=pattern), 8))
    return list(chunks_of(blocks_of(file, start, None, limit=None, max_line_bytes=longest), 8))


def records(chunks: list[Chunk]) -> list[list[Line]]:
    return [list(chunk.lines.lines()) if isinstance(chunk.lines, Block) else [chunk.lines] for chunk in chunks]


@pytest.mark.parametrize("logs", [False, True], ids=["lines", "logs"])
@given(content=_CONTENT, longest=st.integers(4, 40), start=st.integers(0, 30), chunk=st.integers(1, 9))
def test_chunks_do_not_depend_on_how_a_file_is_read(
    logs: bool, content: bytes, longest: int, start: int, chunk: int
) -> None:
    """Every way to read a file yields the same lines and numbers, each line once, with rising numbers."""
    start = min(start, len(content))
    whole = read(content, longest=longest, start=start, logs=logs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "READ_BYTES", chunk)
        again = read(content, longest=longest, start=start, logs=logs)
    assert records(again) == records(whole)
    numbers = [each.number for each in whole]
    assert [each.number for each in again] == numbers
    assert all(0 < one < other for one, other in itertools.pairwise([*numbers, 1 << 40]))
    file = io.BytesIO(content)
    plain = blocks_of(file, start, None, limit=None, max_line_bytes=longest)
    if not logs:
        expected = [line for block in plain for line in (block.lines() if isinstance(block, Block) else [block])]
        assert list(itertools.chain(*records(whole))) == expected


def test_chunk_ends_where_a_line_begins_behind_a_multiple_of_the_size() -> None:
    """A chunk ends at the first line after a multiple of the size; its halves have numbers by offset."""
    content = b"".join(b"%04d\n" % number for number in range(10))
    numbers = [each.number for each in read(content, longest=40, logs=False)]
    assert numbers == [10, 20, 25, 35, 40, 50]
    assert [each.number for each in read(content, longest=40, start=15, logs=False)] == numbers[1:]
    halves = read(content, longest=40, logs=False)[0].halves()
    assert halves is not None
    assert [each.number for each in halves] == [5, 10]
    assert halves[0].halves() is None
