"""``make run INPUT=…`` passes the path unchanged to the demonstration."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_MAKEFILE = Path(__file__).parents[2] / "Makefile"

# Variables that an outer make passes on; a nested make would also print directories.
_OUTER_MAKE = {"INPUT", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "GNUMAKEFLAGS"}

# Stands in for the interpreter of a complete environment: prints its arguments, one per line.
_PYTHON = """#!/bin/sh
for argument; do printf '%s\\n' "$argument"; done
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a project with a complete environment, whose interpreter prints its arguments."""
    shutil.copy(_MAKEFILE, tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "constraints.txt").touch()
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(_PYTHON)
    python.chmod(0o755)
    (tmp_path / ".venv" / ".stamp-run").touch()
    return tmp_path


def run_make(project: Path, *arguments: str, **variables: str) -> list[str]:
    """Return the arguments of the demonstration."""
    environment = {name: value for name, value in os.environ.items() if name not in _OUTER_MAKE}
    done = subprocess.run(
        ["make", "run", *arguments],
        cwd=project,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    return lines[lines.index("examples.ship_demo") + 1 :]


@pytest.mark.parametrize(
    "path",
    ["/var/log", "it's a path", "two  spaces", "/var/log/*.log", 'a "quoted" one', "a$b $(c) `d` \\e", "a;b&c|d>e #f"],
)
def test_path_reaches_the_demonstration_unchanged(project: Path, path: str) -> None:
    """INPUT is one argument, whatever its content, from make's command line or the environment."""
    assert run_make(project, f"INPUT={path}") == ["--input", path]
    assert run_make(project, INPUT=path) == ["--input", path]


def test_no_path_means_that_the_demonstration_chooses(project: Path) -> None:
    """An empty or missing INPUT passes no argument."""
    assert run_make(project) == []
    assert run_make(project, "INPUT=") == []
