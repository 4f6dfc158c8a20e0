"""taildir: directories that match globs."""

import os
from pathlib import Path

import pytest

from producer.agent.sources.taildir.groups import Scan, file_group, glob_group
from tests.runaway import ENDLESS, RUNAWAY

from .following import Tail, Writer


def _tree(root: Path) -> None:
    for path in ("one/a.log", "one/two/b.log", "three/c.log", ".hidden/d.log", "e.log"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{path}\n")


def test_a_name_at_which_an_expression_runs_away_is_not_followed(
    quick_limit: None, caplog: pytest.LogCaptureFixture
) -> None:
    """If an expression reaches its search limit at a name, the file is not followed, and that is logged."""
    group = file_group("g", f"/var/log/{RUNAWAY[:-1]}", {})
    scan = Scan("/var/log", 1, [], [group])
    assert (scan.group_of("aa"), scan.group_of(ENDLESS)) == (group, None)
    assert caplog.messages[0].startswith("file_groups.g: a search with")


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("**/*.log", ["", "one", "one/two", "three"]),
        ("*/*.log", ["one", "three"]),
        ("one/**/*.log", ["one", "one/two"]),
        ("**/two/*.log", ["one/two"]),
        ("t*e/*.log", ["three"]),
        (".h*/*.log", [".hidden"]),
        ("absent/**/*.log", []),
        ("*.log", [""]),
    ],
)
def test_globs_name_directories(tmp_path: Path, pattern: str, wanted: list[str]) -> None:
    """A glob matches existing directories, no files, and hidden directories only if the pattern says so."""
    _tree(tmp_path)
    found = glob_group(f"{tmp_path}/{pattern}", {}).directories()
    assert sorted(os.path.relpath(path, tmp_path) for path in found) == sorted(path or "." for path in wanted)


def test_links_that_lead_back_are_followed_once(tmp_path: Path) -> None:
    """Links back to their own directory are followed once, not in endless combinations."""
    tail = Tail(tmp_path, str(tmp_path / "logs" / "**" / "*.log"), allow_links_to=(str(tmp_path),))
    (tail.logs / "self0").symlink_to(".")
    (tail.logs / "self1").symlink_to(".")
    (tail.logs / "loop").symlink_to("loop")
    (tail.logs / "deep").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tail.logs / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tail.logs / "a.log", tail.logs / "deep" / "b.log", tmp_path / "elsewhere" / "c.log"):
        Writer(path).lines(1)

    assert len(tail.seen()) == 3


def test_files_below_a_glob_are_not_taken_for_directories(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Files below a glob's directory cause no messages, and deleted ones are forgotten."""
    tail = Tail(tmp_path, str(tmp_path / "logs" / "**" / "*.log"), forget_after=1.0)
    Writer(tail.logs / "a.log").lines(1)
    b = Writer(tail.logs / "b.log")
    b.lines(1)
    assert len(tail.seen()) == 2
    b.path.unlink()
    tail.look(200)
    tail.look(700)
    tail.look(700)

    assert len(tail.outlet.names()) == 1
    assert not caplog.records
