"""Tests know which Pythons they have, and report the missing ones."""

import pytest

from . import interpreters


@pytest.fixture(params=["3.13", "3.14"])
def absent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let one version be missing: a wanted one, and an optional one."""
    others = {version: "python" for version in interpreters.SUPPORTED if version != request.param}
    monkeypatch.setattr(interpreters, "CURRENT", "3.11")
    monkeypatch.setattr(interpreters, "found", lambda: others)
    return str(request.param)


def test_a_missing_python_is_reported_and_fails_with_all(
    absent: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output says how to install it; ``--all`` fails for one that CI has."""
    monkeypatch.setattr(interpreters, "environment", lambda version: f"env-{version}")
    assert interpreters.main([]) == 0
    assert interpreters.main(["--all"]) == (absent in interpreters.WANTED)
    assert f"go without it: Python {absent} is not found" in capsys.readouterr().out


def test_a_test_with_a_python_that_is_missing_is_skipped(absent: str) -> None:
    """A test with a missing Python is skipped visibly; CI allows no skip."""
    with pytest.raises(pytest.skip.Exception, match=f"pyenv install {absent}"):
        interpreters.environment(absent)
