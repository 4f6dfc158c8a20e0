"""The list of rare tests is valid, and ``--without-rare`` leaves them out."""

import subprocess
import sys

from .named_tests import TESTS, missing_tests
from .rare import RARE, is_rare

_PLACES = [place for places in RARE.values() for place in places]


def test_every_place_of_the_list_exists() -> None:
    """Every entry of the list exists: a renamed file would otherwise return to `make test` unnoticed."""
    tests = [place for place in _PLACES if "::" in place]
    assert missing_tests(tests) == []
    assert [place for place in _PLACES if place not in tests and not (TESTS / place).exists()] == []


def test_a_place_is_a_folder_a_file_or_a_test() -> None:
    """A folder, a file or a test in the list covers all that is below it, and nothing else."""
    (kills, *_) = RARE["loops of kills"]
    assert is_rare(f"tests/{kills}::test_a[1]")
    assert not is_rare(f"tests/{kills.removesuffix('.py')}_more.py::test_a")
    test = RARE["packages and builds"][-1]
    assert is_rare(f"tests/{test}")
    assert is_rare(f"tests/{test}[a]")
    assert not is_rare(f"tests/{test}_more")


def test_make_test_deselects_the_rare_tests_including_those_of_other_pythons() -> None:
    """`make test` deselects the rare tests, including those of other Pythons, and names them in one line."""
    places = ["server/fuzz/test_fuzz.py", "processes/test_signals.py"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "--without-rare", *places]
    told = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=True).stdout
    assert "test_fuzz.py" not in told
    assert "test_signals.py" in told
    assert "[3.12" not in told
    assert f"`make test-all` adds: {', '.join([*RARE, 'other Pythons'])}." in told
