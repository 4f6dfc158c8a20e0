"""Ctrl-C and SIGTERM: one line, the right exit code, and no process left."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from producer.server import LogHubServer
from tests.spark.cluster.processes import Process, kill_session, processes_of
from tests.support.waiting import eventually

from .conftest import PATIENCE, ship_arguments

# Stands in for a Java that never returns: as the launcher of the command line, or as Spark itself.
_JAVA = """#!/usr/bin/env bash
case "$*" in
  *-version*) echo 'openjdk version "17.0.1"' >&2 ;;
  *launcher.Main*) [ "$HANGS_IN" = launcher ] && exec sleep 3600; printf '\\0\\n%s\\0SparkSubmit\\0' "$0" ;;
  *) exec sleep 3601 ;;
esac
"""

ROOT = Path(__file__).parents[2]


class Started:
    """A program in its own session, with its child processes, as a terminal starts it."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        known = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "COVERAGE_"))}
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=known | environment,
            start_new_session=True,
        )

    def left(self) -> list[Process]:
        return processes_of(self.process.pid)

    def runs(self, words: str) -> bool:
        """Return True if a process of the session has these words in its command line."""
        assert self.process.poll() is None, self.process.communicate()
        return any(words in one.command for one in self.left())

    def interrupt(self, number: int, *, group: bool) -> tuple[int, str, str]:
        """Send a signal to the program, or to its group as a terminal does. Return exit code, output and errors."""
        if group:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err

    def clean(self) -> None:
        """End all processes that a failed test has left."""
        kill_session(self.process.pid)
        self.process.communicate()


Start = Callable[..., Started]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts programs, which are ended after the test."""
    started: list[Started] = []

    def starter(*command: str, **environment: str) -> Started:
        started.append(Started([*command], environment))
        return started[-1]

    yield starter
    for one in started:
        one.clean()


@pytest.fixture
def endless_java(tmp_path: Path) -> str:
    """Return a JAVA_HOME whose Java never becomes Spark."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(_JAVA)
    java.chmod(0o755)
    return str(tmp_path / "java")


def programs(server: LogHubServer, folder: Path) -> dict[str, list[str]]:
    (folder / "a.log").write_text("one\n")
    ship = ["-m", "producer", "ship", *ship_arguments(server, folder / "a.log"), "--master=local[1,4]"]
    return {
        "ship": ship,
        "follow": [*ship, "--follow", f"--checkpoint={folder}/checkpoint"],
        "demo": ["-m", "examples.ship_demo", "--input", str(folder / "a.log")],
    }


def assert_ended(started: Started, number: int, code: int, *, group: bool) -> None:
    """Check that a signal ends the program with an exit code and one line, and leaves no process."""
    ended, _, err = started.interrupt(number, group=group)
    assert ended == code, err
    assert len([line for line in err.splitlines() if "interrupted" in line or "terminated" in line]) == 1, err
    assert "Traceback" not in err
    eventually(lambda: not started.left(), "the end of every process")


@pytest.mark.parametrize(
    ("name", "hangs_in", "group"),
    [
        ("ship", "launcher", False),
        ("ship", "java", True),
        ("follow", "java", False),
        ("demo", "launcher", True),
    ],
)
def test_interrupt_before_there_is_a_jvm_leaves_no_process(
    name: str, hangs_in: str, group: bool, start: Start, endless_java: str, tmp_path: Path, server: LogHubServer
) -> None:
    """Ctrl-C while Java starts leaves no process, with exit code 130."""
    started = start(*programs(server, tmp_path)[name], JAVA_HOME=endless_java, HANGS_IN=hangs_in)
    eventually(lambda: started.runs("sleep 360"), "the start of Java", 60)
    assert_ended(started, signal.SIGINT, 130, group=group)


def test_sigterm_leaves_no_process_either_and_has_its_own_exit_code(
    start: Start, endless_java: str, tmp_path: Path, server: LogHubServer
) -> None:
    """SIGTERM leaves no process either, and has its own exit code."""
    started = start(*programs(server, tmp_path)["ship"], JAVA_HOME=endless_java, HANGS_IN="java")
    eventually(lambda: started.runs("sleep 3601"), "the start of Java", 60)
    assert_ended(started, signal.SIGTERM, 143, group=False)


@pytest.mark.parametrize("name", ["ship", "demo"])
def test_ctrl_c_while_modules_are_imported_prints_no_trace(
    name: str, start: Start, tmp_path: Path, server: LogHubServer
) -> None:
    """Ctrl-C while modules are imported prints no trace."""
    slow = tmp_path / "slow" / "pyspark" / "__init__.py"
    slow.parent.mkdir(parents=True)
    slow.write_text(f"import pathlib, time\npathlib.Path({str(tmp_path / 'importing')!r}).touch()\ntime.sleep(3600)\n")
    started = start(*programs(server, tmp_path)[name], PYTHONPATH=str(tmp_path / "slow"))
    eventually((tmp_path / "importing").exists, "the import")
    assert_ended(started, signal.SIGINT, 130, group=True)


@pytest.mark.parametrize("moment", ["java", "context"])
@pytest.mark.usefixtures("quick_java")
def test_interrupt_while_spark_starts_leaves_no_jvm(
    moment: str, start: Start, tmp_path: Path, server: LogHubServer
) -> None:
    """Ctrl-C while Spark starts ends the JVM, just started or within its context."""
    local = tmp_path / "local"
    local.mkdir()
    started = start(*programs(server, tmp_path)["ship"], SPARK_LOCAL_DIRS=str(local))
    if moment == "java":
        eventually(lambda: started.runs("org.apache.spark.deploy.SparkSubmit"), "the start of the JVM", 60)
    else:
        eventually(lambda: any(local.glob("blockmgr-*")), "the context", PATIENCE)
    assert_ended(started, signal.SIGINT, 130, group=True)
