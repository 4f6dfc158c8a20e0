"""Whole files: a failed write leaves nothing behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from producer.runtime import whole_file
from producer.runtime.whole_file import write_whole


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_the_file_before_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A failed write leaves the previous file and no partial one; the error names the file and the remedy."""
    file, beside = tmp_path / "kept", tmp_path / "kept.new"
    write_whole(file, b"before", beside)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(whole_file.os if step == "fsync" else Path, step, full)
        with pytest.raises(OSError, match=r"No space left.*; free some space: '.*/kept'"):
            write_whole(file, b"after", beside)
    assert (file.read_bytes(), os.listdir(tmp_path)) == (b"before", ["kept"])  # noqa: PTH208
    beside.write_bytes(b"what a crash has left, and is longer")
    write_whole(file, b"after", beside)
    assert (file.read_bytes(), beside.exists()) == (b"after", False)
