"""No test is skipped silently: CI allows none, elsewhere its reason is reported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import programs

ROOT = Path(__file__).parents[2]
_TESTS = """
import pytest

def test_skips():
    pytest.skip("no such program")

@pytest.mark.skipif(True, reason="no such system")
def test_is_skipped():
    pass

@pytest.mark.xfail(strict=True)
def test_is_expected_to_fail():
    assert False
"""
_MODULE = "import pytest\npytest.importorskip('no_such_module')"


def run(folder: Path, *options: str) -> tuple[int, str]:
    """Return the exit code of a run of these tests, and its output."""
    (folder / "test_some.py").write_text(_TESTS)
    (folder / "test_module.py").write_text(_MODULE)
    ours = ["-c", "pyproject.toml", "-p", "tests.support.skips", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *ours, *options, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=120)
    return done.returncode, done.stdout


def test_a_test_mark_or_module_that_skips_fails_with_its_reason(tmp_path: Path) -> None:
    """A test, mark or module that skips fails with its reason; an expected failure does not."""
    code, printed = run(tmp_path, "--nothing-skipped", "--continue-on-collection-errors")
    assert code == 1
    for reason in ("no such program", "no such system", "could not import 'no_such_module'"):
        assert f"Skipped: {reason}" in printed
    assert "1 failed, 1 xfailed, 2 errors" in printed


def test_the_default_options_print_each_skipped_test_with_its_reason(tmp_path: Path) -> None:
    """The default options print each skipped test with its reason."""
    code, printed = run(tmp_path)
    assert code == 0
    assert "no such program" in printed
    assert "no such system" in printed


@pytest.mark.parametrize(("ci", "are_forbidden"), [("true", True), ("", False)])
def test_skips_are_failures_in_ci(ci: str, are_forbidden: bool) -> None:
    """Skips are failures in ``make test`` in CI only."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "CI"}
    command = ["make", "--dry-run", "test", f"CI={ci}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environ, timeout=60)
    assert ("--nothing-skipped" in done.stdout) == are_forbidden


def test_a_program_that_is_missing_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that needs a missing program is skipped; the reason names its package."""
    monkeypatch.setattr(programs.shutil, "which", lambda _: None)
    with pytest.raises(pytest.skip.Exception, match="systemd-analyze is not installed: `apt-get install systemd`"):
        programs.need("systemd-analyze")


def test_ci_installs_programs_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """CI installs only missing programs, with one look at the package index; with none missing, it asks for nothing."""
    asked: list[list[str]] = []
    monkeypatch.setattr(programs.subprocess, "run", lambda command, **_: asked.append(command[2:]))
    monkeypatch.setattr(programs.shutil, "which", lambda command: None if command == "zsh" else command)
    programs.install()
    assert asked == [["update"], ["install", "--yes", "--no-install-recommends", "zsh"]]
    monkeypatch.setattr(programs.shutil, "which", lambda command: command)
    programs.install()
    assert len(asked) == 2
    assert ".venv/bin/python -m tests.programs" in (ROOT / ".ci/run").read_text()
