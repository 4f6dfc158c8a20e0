"""Make an environment with the base dependencies for each supported Python of this machine.

``python -m tests.processes.interpreters`` makes the environments and prints the missing Pythons; ``.ci/run`` calls it.
With ``--all`` it fails if one of :data:`WANTED` is missing.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / ".venv" / "pythons"
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
#: Without one of these a test is skipped, which fails in CI; other versions are optional.
WANTED = ("3.11", "3.12", "3.13")
CURRENT = f"{sys.version_info.major}.{sys.version_info.minor}"


@cache
def found() -> dict[str, str]:
    """Return the executables of the Pythons that start, by version; the current one comes first."""
    pythons = {CURRENT: sys.executable}
    for version in SUPPORTED:
        for candidate in _candidates(version):
            if version not in pythons and _starts(candidate, version):
                pythons[version] = candidate
    return pythons


def missing() -> dict[str, str]:
    """Return instructions for the Pythons that do not start, by version."""
    to_do = "not found on the path nor in pyenv's folder: `pyenv install {0}`, or as your system does it"
    return {version: f"Python {version} is {to_do.format(version)}" for version in SUPPORTED if version not in found()}


def _candidates(version: str) -> list[str]:
    on_path = shutil.which(f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    installed = sorted((pyenv / "versions").glob(f"{version}.*/bin/python"))
    return [*([on_path] if on_path else []), *map(str, installed)]


def _starts(executable: str, version: str) -> bool:
    check = f"import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    return subprocess.run([executable, "-c", check], capture_output=True, check=False).returncode == 0


def environment(version: str) -> str:
    """Return the executable of an environment with this checkout; it is remade when the checkout changes."""
    if version == CURRENT:
        return sys.executable
    if version in missing():
        pytest.skip(missing()[version])
    folder = ENVIRONMENTS / version
    python, stamp = folder / "bin" / "python", folder / "installed-for"
    wanted = _dependencies()
    with _alone():
        if not stamp.exists() or stamp.read_text() != wanted:
            _run(found()[version], "-m", "venv", "--clear", "--without-pip", str(folder))
            pip = (sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check")
            # The compiled modules are only tested, not measured, so they need no optimisation. With PIP_NO_COMPILE=no,
            # pip compiles the Python files.
            _run(*pip, "install", "--quiet", "-e", str(ROOT), CFLAGS="-O0", PIP_NO_COMPILE="no")
            stamp.write_text(wanted)
    return str(python)


@contextmanager
def _alone() -> Iterator[None]:
    """Hold a lock, so that other test processes wait."""
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    with (ENVIRONMENTS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _dependencies() -> str:
    """Return the inputs of an environment: its packages, and the sources compiled for it."""
    match = re.search(r"^dependencies = \[.*?^\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)
    assert match is not None, "pyproject.toml has no dependencies"
    compiled = sorted((ROOT / "producer").rglob("*.p[yx][xd]"))
    return "\n".join([match.group(), *(source.read_text() for source in compiled)])


def _run(*command: str, **environ: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environ})
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}"


def main(arguments: list[str]) -> int:
    """Make all environments and print the missing ones; return 1 if one of them is wanted."""
    for each in found():
        print(f"==> tests have Python {each}: {environment(each)}")
    for reason in missing().values():
        print(f"==> tests go without it: {reason}")
    return int("--all" in arguments and any(version in missing() for version in WANTED))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
