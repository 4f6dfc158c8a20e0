"""The garbage collector scans the objects of a module's tests, and no older ones."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FIRST = """
import gc

held = []

class Circle:
    def __init__(self):
        self.me = self

    def __del__(self):
        held.append("collected")

def test_leaves_a_circle():
    assert gc.isenabled()
    gc.disable()
    Circle()
"""
_SECOND = """
import gc

from test_first import Circle, held

def test_finds_it_collected():
    gc.enable()
    assert held == ["collected"]

def test_what_lasts_is_not_looked_at():
    assert not any(each is Circle for each in gc.get_objects())
    assert any(type(each) is Circle for each in [Circle()])
    gc.collect()
    assert held == ["collected"] * 2
"""


def test_a_full_collection_scans_a_tests_own_objects_and_a_modules_garbage_is_gone(tmp_path: Path) -> None:
    """A full collection scans a test's own objects, and a module's garbage is gone before the next module."""
    (tmp_path / "test_first.py").write_text(_FIRST)
    (tmp_path / "test_second.py").write_text(_SECOND)
    ours = ["-c", "pyproject.toml", "-p", "tests.support.lasting", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *ours, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
