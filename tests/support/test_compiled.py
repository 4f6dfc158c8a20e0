"""Modules that all processes of tests need are compiled once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("other", "code"), [("", 0), ("import no_such_module", 2)])
def test_all_modules_of_tests_are_compiled_and_no_test_is_made(other: str, code: int, tmp_path: Path) -> None:
    """All modules of tests are compiled and no test module is; a module that cannot be imported is an error."""
    (tmp_path / "test_some.py").write_text(
        "def pytest_generate_tests():\n    raise AssertionError\n\ndef test():\n    pass\n"
    )
    (tmp_path / "test_other.py").write_text(other)
    command = [sys.executable, "-m", "tests.compiled", str(tmp_path)]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environ, timeout=120)
    assert done.returncode == code, done.stdout
    names = {path.name.partition(".")[0] for path in (tmp_path / "__pycache__").glob("*-pytest-*.pyc")}
    assert names >= {"test_some"}
    run = (ROOT / ".ci" / "run").read_text()
    assert run.index("-m tests.compiled") < run.index("nice .ci/sanitize") < run.index("make test-all ")
