"""File identity: marks are the same however the bytes before the offset were read."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.runtime.file_identity import Mark, holds_marks, marks_at, marks_of


@given(size=st.integers(1, 100_000), added=st.integers(1, 100_000))
def test_marks_computed_from_blocks_equal_those_read_from_the_file(
    size: int, added: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Marks computed from blocks equal those read from the file."""
    data = b"".join(b"line %d\n" % number for number in range(40_000))[: size + added]
    size = min(size, len(data) - 1)
    path = tmp_path_factory.getbasetemp() / "marks"
    path.write_bytes(data)
    marks = marks_of(data[:size][-256:], data[size:], len(data), marks_of(b"", data[:size], size, ()))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert holds_marks(descriptor, marks)
        assert marks[-1] == marks_at(descriptor, len(data))[-1]
        assert not holds_marks(descriptor, [*marks, Mark(len(data), 0)])
    finally:
        os.close(descriptor)
