"""The session: workers are this Python, can import the package, and say what is missing when they cannot."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from producer.ship import jvm, session
from producer.ship.failure import describe

_TRACE = """\
An exception was thrown from the Python worker:
Traceback (most recent call last):
ValueError: cause

Traceback (most recent call last):
producer.spark.errors.DeliveryFailedError: 3 records were not acknowledged
"""


def test_local_workers_run_this_python_with_this_package(spark: SparkSession) -> None:
    """A task imports the package from where the driver has it, in the driver's interpreter."""

    def look(_: int) -> tuple[str, str]:
        import producer

        return sys.executable, str(producer.__file__)

    import producer

    executable, file = spark.sparkContext.parallelize([0], 1).map(look).collect()[0]
    assert Path(executable).resolve() == Path(sys.executable).resolve()
    assert file == producer.__file__


def test_task_has_four_attempts_by_default() -> None:
    """Spark's local mode gives a task one attempt unless the master says otherwise."""
    assert session.LOCAL_MASTER == "local[*,4]"


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[2]", True), ("local[*,4]", True), ("local-cluster[2,1,1024]", False), ("yarn", False)],
)
def test_masters_with_their_own_workers_get_the_package_as_a_zip(master: str, local: bool) -> None:
    """Only threads of this machine's JVM share its files and environment."""
    assert session.is_local(master) is local


def test_zip_holds_the_package_and_nothing_else() -> None:
    """What other workers get can be imported from the zip alone."""
    with zipfile.ZipFile(session.package_zip()) as archive:
        names = archive.namelist()
    assert "producer/__init__.py" in names
    assert "producer/ship/job.py" in names
    assert "producer/ship/log4j2.properties" in names
    assert not [name for name in names if name.endswith(".pyc") or not name.startswith("producer/")]


def test_executors_import_the_package_from_the_zip_of_their_folder(tmp_path: Path) -> None:
    """An executor of a cluster finds the zip by a relative path; all that tasks unpickle is imported from it."""
    shutil.copy(session.package_zip(), tmp_path / "producer.zip")
    modules = "producer.ship.spark_engine", "producer.ship.follow.query", "producer.ship.follow.source"
    begin, end = "import sys; sys.path.insert(0, './producer.zip')", "print(sys.modules['producer'].__file__)"
    program = f"{begin}; import {', '.join(modules)}; {end}"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("./producer.zip")


def test_package_path_is_added_after_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PYTHONPATH that a person set keeps its order, and nothing is added twice."""
    monkeypatch.setenv("PYTHONPATH", "/one")
    session._put_on_python_path(Path("/two"))
    session._put_on_python_path(Path("/two"))
    assert os.environ["PYTHONPATH"] == f"/one{os.pathsep}/two"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            _TRACE,
            "3 records were not acknowledged",
        ),
        (
            "Traceback:\nModuleNotFoundError: No module named 'lz4'\n",
            "a Spark worker cannot import lz4: install loghub-producer where the workers run",
        ),
        ("Traceback:\n  File x\nValueError: something else\n", "ValueError: something else"),
        ("Job aborted due to stage failure\nat org.apache.spark", "Job aborted due to stage failure"),
        ("", "RuntimeError"),
    ],
)
def test_failure_of_a_job_is_told_in_one_line(text: str, said: str) -> None:
    """Spark's traces are reduced to the message of the exception that ended the task."""
    assert describe(RuntimeError(text)).startswith(said)


@pytest.mark.parametrize("logger", ["py4j.clientserver", "py4j.java_gateway", None])
def test_what_an_interrupt_does_to_the_bridge_is_not_logged(
    logger: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the interrupt nor the connection that broke by it prints a trace; other errors do."""
    log = logging.getLogger(logger)
    with session.quiet_interrupts():
        for error in (KeyboardInterrupt, LookupError):
            try:
                try:
                    raise error
                finally:
                    raise BrokenPipeError
            except BrokenPipeError:
                log.exception("while %s", error.__name__)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == ["while LookupError"]


@pytest.mark.parametrize("program", ["cat", "true"])
def test_the_pipe_to_a_jvm_is_closed_with_it(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it has ended by itself."""
    process = subprocess.Popen([program], stdin=subprocess.PIPE, process_group=0)
    monkeypatch.setattr(jvm, "_popen", lambda *_: process)
    started = jvm.Jvm({})
    if program == "true":
        process.wait()
    started.end()
    assert process.stdin is not None
    assert (process.stdin.closed, process.returncode is None) == (True, False)
