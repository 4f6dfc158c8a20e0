"""Workers use this Python, can import the package, and report missing packages."""

import logging
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
from pyspark.sql import SparkSession

from producer.ship import jvm, python_daemon, session
from producer.ship.failure import describe

_TRACE = """\
An exception was thrown from the Python worker:
Traceback (most recent call last):
ValueError: cause

Traceback (most recent call last):
producer.spark.errors.DeliveryFailedError: 3 records were not acknowledged
"""


def test_local_workers_run_this_python_with_this_package(spark: SparkSession) -> None:
    """A local task imports the package of the driver, in the driver's interpreter."""

    def look(_: int) -> tuple[str, str]:
        import producer

        return sys.executable, str(producer.__file__)

    import producer

    executable, file = spark.sparkContext.parallelize([0], 1).map(look).collect()[0]
    assert Path(executable).resolve() == Path(sys.executable).resolve()
    assert file == producer.__file__


def test_local_workers_import_pyspark_as_it_is_installed(spark: SparkSession) -> None:
    """The daemon of local workers uses the installed pyspark, and does not compile Spark's zip file."""

    def look(_: int) -> str:
        return sys.modules["__main__"].__spec__.name  # type: ignore[union-attr]  (that of the daemon)

    assert spark.sparkContext.parallelize([0], 1).map(look).collect() == ["producer.ship.python_daemon"]
    path = ["/job", "/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-1-src.zip", "/a/lib/own.zip", "/site"]
    assert python_daemon.installed_first(path) == [path[0], *path[3:], *path[1:3]]


def test_local_workers_are_forked_with_the_shipping_modules_imported(spark: SparkSession) -> None:
    """Local workers are forked with the shipping modules imported."""

    def look(_: int) -> bool:
        return "producer.ship.spark_engine" in sys.modules

    assert spark.sparkContext.parallelize([0], 1).map(look).collect() == [True]


def test_modules_imported_before_a_fork_start_no_thread_which_the_fork_would_lose() -> None:
    """Modules imported before a fork start no thread, which the fork would lose."""
    program = """if True:
        import os, sys, threading
        from producer.ship.python_daemon import import_for_workers
        import_for_workers()
        tasks = len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else threading.active_count()
        print(tasks, "producer.ship.spark_engine" in sys.modules, "pyspark.worker" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "True", "True"]


def test_a_daemon_without_a_package_leaves_it_to_the_task_to_say_so() -> None:
    """A daemon without a package of the imports starts, and the task reports it."""
    python_daemon.import_for_workers(["there_is_no_such_package"])


def test_the_daemon_uses_an_installed_pyspark_only_if_it_has_sparks_version(tmp_path: Path) -> None:
    """The daemon uses an installed pyspark only if it has Spark's version."""
    spark, site = tmp_path / "python" / "lib", tmp_path / "site"
    spark.mkdir(parents=True)
    (site / "pyspark").mkdir(parents=True)
    path = [str(spark / "pyspark.zip"), str(site)]
    assert not python_daemon.has_same_pyspark(path)
    for version, same in [("4.3.0", True), ("4.2.0", False)]:
        with zipfile.ZipFile(path[0], "w") as archive:
            archive.writestr("pyspark/version.py", version)
        (site / "pyspark" / "version.py").write_text("4.3.0")
        assert python_daemon.has_same_pyspark(path) is same
    Path(path[0]).write_text("no archive")
    assert not python_daemon.has_same_pyspark(path)


def test_without_numpy_loaded_pysparks_check_for_numpy_values_with_its_slow_imports_is_skipped() -> None:
    """Without NumPy loaded, pyspark's check for NumPy values, with its slow imports, is skipped."""
    program = """if True:
        import sys
        from py4j import protocol
        import producer.ship.session as session
        session.convert_only_loaded()
        session.convert_only_loaded()
        asked = [converter.can_convert("text") for converter in protocol.INPUT_CONVERTER]
        print(any(asked), "pandas" in sys.modules, "pyspark.testing" in sys.modules)
        import numpy
        for value in (numpy.int64(7), numpy.array([7])):
            print(any(converter.can_convert(value) for converter in protocol.INPUT_CONVERTER))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "False", "True", "True"]


def test_numpy_values_are_still_converted_to_java(spark: SparkSession) -> None:
    """NumPy values are still converted to Java."""
    arrays = spark._jvm.java.util.Arrays  # type: ignore[union-attr]
    assert arrays.toString(numpy.array([1, 2])) == "[1, 2]"
    assert spark._jvm.java.lang.Math.abs(numpy.int64(-7)) == 7  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["PYSPARK_PYTHON", "SPARK_HOME"])
def test_workers_of_another_installation_keep_its_pyspark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Workers of another Python or Spark keep their own pyspark."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert session._local_defaults()
    (tmp_path / "python").symlink_to("/bin/sh")
    monkeypatch.setenv(name, str(tmp_path / "python"))
    assert session._local_defaults() == {}


def test_task_has_four_attempts_by_default() -> None:
    """A task has four attempts by default; Spark's local mode alone gives one."""
    assert session.LOCAL_MASTER == "local[*,4]"


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[2]", True), ("local[*,4]", True), ("local-cluster[2,1,1024]", False), ("yarn", False)],
)
def test_masters_with_their_own_workers_get_the_package_as_a_zip(master: str, local: bool) -> None:
    """Masters with their own workers get the package as a zip file."""
    assert session.is_local(master) is local


def test_the_zip_file_holds_only_the_package_which_can_be_imported_from_it() -> None:
    """The zip file holds only the package, which can be imported from it."""
    with zipfile.ZipFile(session.package_zip()) as archive:
        names = archive.namelist()
    assert {"producer/__init__.py", "loghub/spark/__init__.py"} <= set(names)
    assert "producer/ship/job.py" in names
    assert "producer/ship/log4j2.properties" in names
    assert not [name for name in names if "__pycache__" in name or not name.startswith(("producer/", "loghub/"))]
    assert {name[:-1] for name in names if name.endswith(".pyc")} <= set(names)


def test_the_zip_file_has_bytecode_of_the_modules_for_workers_another_python_compiles_the_sources(
    tmp_path: Path,
) -> None:
    """The zip file has bytecode of the modules for workers; another Python compiles the sources."""
    shutil.copy(session.package_zip(), tmp_path / "producer.zip")
    program = """if True:
        import sys
        sys.path.insert(0, "./producer.zip")
        import producer.ship.spark_engine
        of_package = [part.__spec__.origin for name, part in sys.modules.items() if name.startswith("producer.")]
        print(*(sum(origin.endswith(end) for origin in of_package) for end in (".py", ".pyc")))
    """
    of_zip = [sys.executable, "-c", program]
    compiled, kept = map(int, subprocess.run(of_zip, cwd=tmp_path, capture_output=True, check=True).stdout.split())
    assert compiled == 0
    assert kept > 10
    with zipfile.ZipFile(tmp_path / "producer.zip") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "producer.zip", "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, bytes(4) + part[4:] if name.endswith(".pyc") else part)
    compiled, kept = map(int, subprocess.run(of_zip, cwd=tmp_path, capture_output=True, check=True).stdout.split())
    assert (compiled > 10, kept) == (True, 0)


def test_pages_of_the_monitoring_and_the_console_are_read_from_a_zip_file_too(tmp_path: Path) -> None:
    """Pages of the monitoring and the console are read from a zip file, too."""
    shutil.copy(session.package_zip(), tmp_path / "producer.zip")
    program = """if True:
        import sys
        from collections import defaultdict
        sys.path.insert(0, "./producer.zip")
        from producer.agent.monitoring.page import page
        from producer.server.console.page import SCRIPTS, file
        figures = defaultdict(list, agent="a", ready=True, time=0)  # nothing of the rest
        print(page(figures, figures, ("", ""), "", "x")[:15])
        for name in ("console.html", *SCRIPTS):
            file(name, "text/html")
        print(sys.modules["producer"].__file__)
    """
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:1] == ["<!DOCTYPE html>"]
    assert "producer.zip" in done.stdout


def test_executors_import_the_package_from_the_zip_of_their_folder(tmp_path: Path) -> None:
    """An executor imports all modules from the zip file in its folder, by a relative path."""
    shutil.copy(session.package_zip(), tmp_path / "producer.zip")
    modules = "producer.ship.spark_engine", "producer.ship.follow.query", "producer.ship.follow.source", "loghub.spark"
    begin, end = "import sys; sys.path.insert(0, './producer.zip')", "print(sys.modules['producer'].__file__)"
    program = f"{begin}; import {', '.join(modules)}; {end}"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("./producer.zip")


@pytest.mark.parametrize("query", [False, True])
def test_daemon_of_a_cluster_is_the_packages_own_where_no_query_is_planned(
    query: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a query, a cluster uses the package's own daemon; for a query the driver could not import it."""
    given: dict[str, str] = {}
    monkeypatch.setattr(session, "_wait_for_executor", lambda _: None)
    monkeypatch.setattr(session, "_start", lambda _: None)
    monkeypatch.setattr(session, "_configuration", lambda _, defaults: given.update(defaults))
    context = SimpleNamespace(getConf=dict, addPyFile=lambda _: None, environment={"PYTHONPATH": "/theirs"})
    monkeypatch.setattr(session, "SparkContext", SimpleNamespace(getOrCreate=lambda _: context))
    session.build_context(master="spark://nowhere:7077", query=query)
    # A task of a query has one attempt, as a portion has its own attempts.
    assert given.get("spark.task.maxFailures") == ("1" if query else None)
    assert given.get("spark.python.daemon.module") == (None if query else "producer.ship.python_daemon")
    assert context.environment["PYTHONPATH"] == f"/theirs{os.pathsep}./producer.zip"


def test_the_package_is_appended_to_a_pythonpath_of_the_user_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is appended to a PYTHONPATH of the user once."""
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
def test_sparks_traces_are_reduced_to_the_message_of_the_exception_that_ended_the_task(text: str, said: str) -> None:
    """Spark's traces are reduced to the message of the exception that ended the task."""
    assert describe(RuntimeError(text)).startswith(said)


@pytest.mark.parametrize("logger", ["py4j.clientserver", "py4j.java_gateway", None])
def test_the_effects_of_an_interrupt_on_the_bridge_to_java_are_not_logged(
    logger: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The effects of an interrupt on the bridge to Java are not logged; other errors are."""
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
    """The pipe to a JVM is closed with it, even if the JVM has ended by itself."""
    process = subprocess.Popen([program], stdin=subprocess.PIPE, process_group=0)
    monkeypatch.setattr(jvm, "_popen", lambda *_: process)
    started = jvm.Jvm({})
    if program == "true":
        process.wait()
    started.end()
    assert process.stdin is not None
    assert (process.stdin.closed, process.returncode is None) == (True, False)


def test_spark_submit_opts_overrides_the_options_for_a_quick_start_as_java_uses_the_last_of_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPARK_SUBMIT_OPTS overrides the options for a quick start, as Java uses the last of two."""
    (tmp_path / "bin").mkdir()
    submit = tmp_path / "bin" / "spark-submit"
    submit.write_text('#!/bin/sh\necho $SPARK_SUBMIT_OPTS >"$_PYSPARK_DRIVER_CONN_INFO_PATH"\n')
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=4")
    with jvm._popen({}, tmp_path / "said", session._QUICK_CODE) as process:
        assert process.wait() == 0
    assert (tmp_path / "said").read_text().split() == ["-XX:TieredStopAtLevel=1", "-XX:TieredStopAtLevel=4"]


def test_options_of_executors_in_spark_defaults_conf_are_kept_else_the_jvm_is_set_to_start_quickly(
    spark: SparkSession,
) -> None:
    """Options of executors in ``spark-defaults.conf`` are kept; else the JVM is set to start quickly."""
    name = "spark.executor.defaultJavaOptions"
    properties = spark._jvm.System  # type: ignore[union-attr]
    assert session._configuration({}, session._EXECUTOR_DEFAULTS).get(name) == "-XX:TieredStopAtLevel=1"
    properties.setProperty(name, "-Dtheirs=1")  # As spark-submit does with its properties.
    try:
        found = session._configuration({"spark.app.name": "a"}, session._EXECUTOR_DEFAULTS)
    finally:
        properties.clearProperty(name)
    assert (found.get(name), found.get("spark.app.name")) == ("-Dtheirs=1", "a")


class _Executors:
    """A context whose executor appears at the third poll."""

    def __init__(self) -> None:
        self.looks = 0

    def __getattr__(self, _: str) -> object:
        return lambda: self

    def getExecutorInfos(self) -> list[str]:
        self.looks += 1
        return ["the driver"] + ["an executor"] * (self.looks > 2)


def test_work_on_a_cluster_begins_when_there_is_an_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work on a cluster starts with its first executor, or after a limited wait."""
    monkeypatch.setattr(session, "_POLL_SECONDS", 0.0)
    context = _Executors()
    session._wait_for_executor(SimpleNamespace(_jsc=context))  # type: ignore[arg-type]
    assert context.looks == 3
    monkeypatch.setattr(session, "_EXECUTOR_PATIENCE", 0.0)
    session._wait_for_executor(SimpleNamespace(_jsc=_Executors()))  # type: ignore[arg-type]


def test_a_wait_for_executors_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A wait for executors is logged once."""
    monkeypatch.setattr(session, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(session, "_SILENT_SECONDS", 0.0)
    session._wait_for_executor(SimpleNamespace(_jsc=_Executors()))  # type: ignore[arg-type]
    assert caplog.text.count("Spark has no executor yet") == 1


def test_executors_that_come_with_the_work_are_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """With dynamic allocation, executors are not awaited."""
    waits: list[object] = []
    monkeypatch.setattr(session, "_wait_for_executor", waits.append)
    monkeypatch.setattr(session, "_start", lambda _: None)
    monkeypatch.setattr(session, "_configuration", lambda *_: None)
    for dynamic in ("false", "true"):
        conf = {"spark.dynamicAllocation.enabled": dynamic}
        context = SimpleNamespace(getConf=lambda conf=conf: conf, addPyFile=lambda _: None, environment={})
        kind = SimpleNamespace(getOrCreate=lambda _, context=context: context)
        monkeypatch.setattr(session, "SparkContext", kind)
        session.build_context(master="spark://nowhere:7077")
    assert len(waits) == 1
