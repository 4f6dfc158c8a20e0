"""Files that are written as a whole survive a crash at any instant."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from producer.ship.errors import InputError
from producer.ship.files.whole import write_whole

from ...support.syncs import noted_syncs


def test_a_file_is_on_the_disk_before_it_has_its_name_and_then_its_name_is(tmp_path: Path) -> None:
    """All bytes are synced, then the file is renamed, then the directory is synced; nothing else is left there."""
    file = tmp_path / "progress.json"
    file.write_text("old")
    with noted_syncs() as seen:
        write_whole(file, "new text")
    assert seen == [("file", 8), ("rename", file.name), ("directory", tmp_path.stat().st_ino)]
    assert [each.name for each in tmp_path.iterdir()] == [file.name]
    assert file.read_text() == "new text"


def test_a_file_that_cannot_be_synced_leaves_the_former_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names it."""
    file = tmp_path / "progress.json"
    file.write_text("old")

    def fails(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(InputError, match=r"cannot be written: .*progress\.json: Input/output error"):
        write_whole(file, "new text")
    assert file.read_text() == "old"
