"""Files that are written atomically survive a crash at any instant."""

import json
import os
from pathlib import Path

import pytest

from producer.ship.errors import InputError
from producer.ship.files.whole import read_checked, write_checked

from ...support.syncs import noted_syncs


def test_all_bytes_are_synced_then_the_file_is_renamed_then_the_directory_is_synced(tmp_path: Path) -> None:
    """All bytes are synced, then the file is renamed, then the directory is synced; no temporary file is left."""
    file, held = tmp_path / "progress.json", {"batch": 7}
    file.write_text("old")
    with noted_syncs() as seen:
        write_checked(file, held)
    assert seen == [("file", file.stat().st_size), ("rename", file.name), ("directory", tmp_path.stat().st_ino)]
    assert [each.name for each in tmp_path.iterdir()] == [file.name]
    assert read_checked(file) == held


def test_a_file_that_cannot_be_synced_leaves_the_former_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a file cannot be synced, the error names it, and the old file stays."""
    file = tmp_path / "progress.json"
    file.write_text("old")

    def fails(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(InputError, match=r"cannot be written: .*progress\.json: Input/output error"):
        write_checked(file, {"batch": 7})
    assert file.read_text() == "old"


def test_a_damaged_checkpoint_file_is_detected_by_its_checksum(tmp_path: Path) -> None:
    """A damaged checkpoint file is detected by its checksum, or its absence."""
    file, held = tmp_path / "progress.json", {"taken": {"1": {"path": "/é\udcff", "end": 5120}}, "batch": 7}
    write_checked(file, held)
    assert read_checked(file) == held
    file.write_text(file.read_text().replace("5120", "5121"))
    with pytest.raises(ValueError, match="its checksum is wrong"):
        read_checked(file)
    file.write_text(json.dumps(held))
    with pytest.raises(ValueError, match="its checksum is wrong"):
        read_checked(file)
