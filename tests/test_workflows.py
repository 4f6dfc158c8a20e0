"""The workflows in .github are safe to run, and test and build what pyproject.toml says is supported."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SUPPORTED = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
#: The rights beyond reading that a job may have.
RIGHTS = {
    "attest": {"contents": "read", "id-token": "write", "attestations": "write"},
    "index": {"id-token": "write"},
    "release": {"contents": "write"},
}


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_action_is_pinned_and_each_job_has_few_rights(path: Path) -> None:
    """An action of another repository is named by its commit, and jobs only read unless they publish."""
    used = re.findall(r"uses: (?!\./)(.*)", path.read_text())
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", each)] == []
    workflow = read(path)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for name, job in workflow["jobs"].items():
        assert job.get("permissions", {"contents": "read"}) == RIGHTS.get(name, {"contents": "read"})


def test_each_supported_python_is_tested_and_gets_wheels() -> None:
    """The classifiers, the tests' matrix and the wheels name the same versions of Python."""
    jobs = read(ROOT / ".github/workflows/tests.yml")["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == SUPPORTED
    wheels = PROJECT["tool"]["cibuildwheel"]["build"]
    assert wheels == [f"cp{version.replace('.', '')}-*" for version in SUPPORTED]


def test_each_target_of_a_workflow_exists() -> None:
    """Workflows call targets of the Makefile."""
    targets = set(re.findall(r"^(?:\$\(VENV\)/)?([\w.-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    texts = "\n".join(path.read_text() for path in WORKFLOWS)
    called = re.findall(r"- run: make (?:\.venv/)?([\w.-]+)", texts)
    called += read(ROOT / ".github/workflows/tests.yml")["jobs"]["make"]["strategy"]["matrix"]["target"]
    assert len(called) > 6
    assert set(called) - targets == set()
