"""Make the peers' environment ``.bench/`` with the pinned packages of ``peers.txt`` and the Java client's jar.

It is made once, and again when its sources change. Processes that need it at the same time wait for each other.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
#: The folder of the environment; ``make clean`` removes it.
FOLDER = HERE.parents[1] / ".bench"
PYTHON = FOLDER / "python" / "bin" / "python"
JAVA = FOLDER / "java"
REQUIREMENTS = HERE / "peers.txt"
MAVEN_PROJECT = HERE / "clients" / "java_producer"
#: Maximum seconds of one command.
PATIENCE = 600


class NotInstalledError(Exception):
    """Raised if an environment cannot be made here; the message is the reason, without host names."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install_python(folder: Path = FOLDER, *, log: Callable[[str], None]) -> None:
    """Make a virtual environment with the packages of ``peers.txt``; the caller holds the lock."""
    target = folder / "python"
    with once(target, REQUIREMENTS.read_bytes() + sys.version.encode()) as needed:
        if needed:
            log("installing the Python peers")
            # The pip of this environment installs them, since installing another pip takes longer than the packages.
            _run([sys.executable, "-m", "venv", "--without-pip", str(target)], target.with_suffix(".log"))
            pip = [sys.executable, "-m", "pip", "--python", str(target / "bin" / "python"), "install", "--no-compile"]
            _run([*pip, "--disable-pip-version-check", "--requirement", str(REQUIREMENTS)], target.with_suffix(".log"))


def install_java(folder: Path = FOLDER, *, log: Callable[[str], None]) -> None:
    """Build the Java client and its dependencies with Maven; the caller holds the lock."""
    for command in ("java", "mvn"):
        if shutil.which(command) is None:
            raise NotInstalledError(f"`{command}` was not found; it takes Maven and a JDK, 11 or newer")
    target = folder / "java"
    sources = [path for path in sorted(MAVEN_PROJECT.rglob("*")) if path.is_file()]
    with once(target, b"".join(path.read_bytes() for path in sources)) as needed:
        if needed:
            log("building the Java peer")
            maven = ["mvn", "--batch-mode", "--file", str(MAVEN_PROJECT / "pom.xml"), f"-Dtarget={target}", "package"]
            _run(maven, target.with_suffix(".log"))


@contextmanager
def once(target: Path, source: bytes) -> Iterator[bool]:
    """Yield whether ``target`` must be made from ``source``; if so, remove it before the block and stamp it after."""
    stamp, digest = target / "stamp", hashlib.sha256(source).hexdigest()
    needed = not stamp.exists() or stamp.read_text() != digest
    if needed:
        shutil.rmtree(target, ignore_errors=True)
    yield needed
    if needed:
        stamp.write_text(digest)


def _run(command: list[str], output: Path) -> None:
    try:
        with output.open("w") as file:
            subprocess.run(command, check=True, timeout=PATIENCE, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    except (OSError, subprocess.SubprocessError) as error:
        what = (
            f"status {error.returncode}" if isinstance(error, subprocess.CalledProcessError) else type(error).__name__
        )
        name = "pip" if "pip" in command else Path(command[0]).name
        raise NotInstalledError(f"{name} failed ({what}); its output is in .bench/{output.name}") from error
