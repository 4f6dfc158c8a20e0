"""Install the programs that some tests need: shells, a checker of systemd units, a reader and a writer of journals.

``python -m tests.programs`` installs the missing ones from Debian's packages, which needs root; ``.ci/run`` calls it.
Elsewhere a test names the missing program and is skipped.
"""

import os
import shutil
import subprocess
import sys

import pytest

#: The commands, and the Debian package of each.
PROGRAMS = {
    "fish": "fish",
    "zsh": "zsh",
    "systemd-analyze": "systemd",
    "journalctl": "systemd",
    "/lib/systemd/systemd-journal-remote": "systemd-journal-remote",
}


def need(command: str) -> None:
    """Skip the test, with a reason that says what to do, if a program of :data:`PROGRAMS` is missing."""
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed: `apt-get install {PROGRAMS[command]}`, or as your system does it")


def missing() -> list[str]:
    """Return the packages of the missing programs."""
    return [package for command, package in PROGRAMS.items() if shutil.which(command) is None]


def install() -> None:
    if packages := missing():
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
            subprocess.run(["apt-get", "-qq", *command], check=True, env=quiet, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    try:
        install()
    except (OSError, subprocess.CalledProcessError) as failure:
        sys.exit(f"error: tests need {', '.join(missing())}: {failure}")
