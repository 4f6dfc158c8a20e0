"""Tests continue where the archive of Spark's classes cannot be made, and the trial leaves nothing."""

import os
from pathlib import Path

import pytest

from . import spark_classes
from .waiting import eventually

_FOREVER = "exec 3> {lives}; sleep 600 & wait"
_MAKES_IT = 'made=${{SPARK_SUBMIT_OPTS#*=}}; echo classes > "${{made%% *}}"'


def spark_that(home: Path, does: str) -> None:
    """Make a Spark home whose ``spark-submit`` runs one shell line."""
    for name in ("bin", "jars"):
        (home / name).mkdir(parents=True, exist_ok=True)
    submit = home / "bin" / "spark-submit"
    submit.write_text(f"#!/bin/sh\n{does.format(lives=home / 'lives')}\n")
    submit.chmod(0o700)


def is_at_end(pipe: int) -> bool:
    try:
        return os.read(pipe, 1) == b""
    except BlockingIOError:
        return False


def test_a_timeout_is_reported_the_trials_processes_end_and_the_next_run_makes_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A timeout is reported, the trial's processes end, and the next run makes the archive."""
    home, archives = tmp_path / "spark", tmp_path / "archives"
    archives.mkdir()
    spark_that(home, _FOREVER)
    os.mkfifo(home / "lives")
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setattr(spark_classes, "MAKING_SECONDS", 1.0)
    listening = os.open(home / "lives", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert spark_classes.sharing_options(archives) == ""
        eventually(lambda: is_at_end(listening), "the end of all that was started")
    finally:
        os.close(listening)
    assert "no archive of Spark's classes, its JVMs start slowly: not made in 1 s" in capsys.readouterr().err
    assert not [path.name for path in archives.iterdir() if path.suffix in {".jsa", ".new"}]
    spark_that(home, _MAKES_IT)
    monkeypatch.setattr(spark_classes, "MAKING_SECONDS", 60.0)
    (archive,) = spark_classes.sharing_options(archives).removeprefix("-XX:SharedArchiveFile=").split()[:1]
    assert Path(archive).read_text() == "classes\n"
