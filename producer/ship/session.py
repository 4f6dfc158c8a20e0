"""Starts and stops the Spark session of the job.

With a local master, all settings are for a quick and quiet start on one machine. With any other master, only the
settings that the job needs are set, and JVM options that ``spark-defaults.conf`` and the environment leave open.

A job without SQL gets only a ``SparkContext``: a session on top of it takes two seconds more.

The package must be importable in the workers. Local workers get this process's path to it through ``PYTHONPATH``, as
they do not inherit ``sys.path``. Others get the package as a zip file. Its dependencies (requests, urllib3, tenacity,
lz4, backports.zstd, regex) must be installed there: compiled wheels cannot be loaded from a zip file.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import logging
import marshal
import os
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home

from ..runtime.loggers import get_logger
from ..runtime.signals import handling
from .java import use_java
from .job import LOCAL_MASTER
from .jvm import Jvm, is_in_environment, remove_from_environment
from .numpy_values import convert_only_loaded

_log = get_logger("loghub.ship.session")

# Files that no worker needs.
_LEFT_OUT = (".pyc", ".pyx", ".pxd", ".pyi")
# Packages that no worker imports; their bytecode is left out.
_NOT_IN_WORKERS = {"agent", "cli", "integrations", "server"}
# Header of bytecode that is not compared with its source (PEP 552): the flags, and no digest.
_UNCHECKED = (1).to_bytes(4, "little") + bytes(8)
_ARCHIVE = "producer.zip"
_PACKAGE = Path(__file__).resolve().parent.parent
_LOG4J = _PACKAGE / "ship" / "log4j2.properties"

# A job that reads files in Python leaves little work to the JVM. A quick start matters more than optimised code, and
# the compiler threads would take the cores from Python.
_QUICK_CODE = "-XX:TieredStopAtLevel=1"
_LOCAL_JAVA_OPTIONS = f"{_QUICK_CODE} -XX:+UseSerialGC -Dlog4j.configurationFile={_LOG4J.as_uri()}"
# A JVM with two garbage collectors set fails to start, so executors get no collector. It is set only as a default.
_EXECUTOR_DEFAULTS = {"spark.executor.defaultJavaOptions": _QUICK_CODE}

# LOCAL_MASTER without repetition of failed tasks.
_ONE_ATTEMPT_MASTER = "local[*]"

_DAEMON = {"spark.python.daemon.module": "producer.ship.python_daemon"}

# Maximum wait for the first executor, seconds: Spark's own limit for registered executors.
_EXECUTOR_PATIENCE = 30.0
_POLL_SECONDS = 0.02
# Time after which the wait is logged, seconds.
_SILENT_SECONDS = 2.0


# The loggers to which Spark's bridge to Java logs the effects of an interrupt.
_PY4J_LOGGERS = [logging.getLogger(name) for name in (None, "py4j.clientserver", "py4j.java_gateway")]  # noqa: TID251  # py4j's own

# The JVM that this process has started; it serves all sessions.
_jvms: list[Jvm] = []


def build_context(*, master: str | None, query: bool = False) -> SparkContext:
    """Start Spark without a session, or return the running context; on a cluster wait for the first executor.

    After an interrupt, no started process is left.

    :param master: a Spark master URL; None for every core of this machine.
    :param query: True to run a query: Spark repeats no failed task, unless its configuration sets a number. False lets
        the package's own daemon fork the workers of a cluster, too. To plan a query, Spark would start this daemon next
        to the driver, where the zip file of the package is missing.
    :raises JavaNotFoundError: there is no Java 17 or newer.
    :raises SparkStartError: Java ended before Spark had started.
    """
    master = master or (_ONE_ATTEMPT_MASTER if query else LOCAL_MASTER)
    use_java()
    # Workers must use this Python with its packages, not the first python3 on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    local = is_local(master)
    settings = _local_settings() if local else _cluster_settings()
    defaults = _local_defaults() if local else _EXECUTOR_DEFAULTS | ({} if query else _DAEMON)
    if query:
        defaults = {**defaults, "spark.task.maxFailures": "1"}
    settings |= {"spark.master": master, "spark.app.name": "loghub-producer ship"}
    convert_only_loaded()
    before = len(_jvms)
    try:
        _start(settings)
        context = SparkContext.getOrCreate(_configuration(settings, defaults))
        if not local:
            _prepare_executors(context)
    except BaseException:
        if len(_jvms) > before:
            end_java()
        raise
    return context


def _prepare_executors(context: SparkContext) -> None:
    """Send the package to the executors, and wait for the first one."""
    context.addPyFile(package_zip())
    # An executor keeps the file in its own folder; no worker has run yet.
    known = context.environment.get("PYTHONPATH", "")
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [known, f".{os.sep}{_ARCHIVE}"]))
    # With dynamic allocation, executors come with the work.
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") != "true":
        _wait_for_executor(context)


def _wait_for_executor(context: SparkContext) -> None:
    """Wait for the first executor, for a limited time."""
    begun, warned = time.monotonic(), False
    spark: Any = context._jsc.sc()
    while len(spark.statusTracker().getExecutorInfos()) < 2:  # The driver is one of them.
        waited = time.monotonic() - begun
        if waited >= _EXECUTOR_PATIENCE:
            return
        if waited >= _SILENT_SECONDS and not warned:
            warned = True
            _log.warning("Spark has no executor yet: the cluster may be busy, or too small for the requested resources")
        time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def running_context(*, master: str | None, query: bool = False) -> Iterator[SparkContext]:
    """Run a block with a context of :func:`build_context`, and end all processes of Spark after it.

    This also holds after an interrupt. In the block, SIGINT keeps its handler, which Spark would replace.
    """
    with quiet_interrupts():
        try:
            with handling({signal.SIGINT: signal.getsignal(signal.SIGINT)}):  # A new SparkContext replaces the handler.
                context = build_context(master=master, query=query)
            try:
                yield context
            finally:
                _stop(context)
        finally:
            end_java()


def _stop(context: SparkContext) -> None:
    try:
        context.stop()
    except Exception as error:  # noqa: BLE001  (the JVM may be gone or busy; it is ended next)
        _log.info("Spark did not stop: %s", error)


def end_java() -> None:
    """End the JVM that this process has started, if any; a later session starts another."""
    while _jvms:
        try:
            _jvms[-1].end()
        finally:
            _jvms.pop()
            SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None


def _start(settings: Mapping[str, str]) -> None:
    """Start Java, unless this process has a JVM, or was given one."""
    if SparkContext._gateway is None and not is_in_environment():
        _jvms.append(Jvm(settings, _QUICK_CODE))
        try:
            _jvms[-1].export_address()
            SparkContext._ensure_initialized()
        finally:
            remove_from_environment()


def _configuration(settings: Mapping[str, str], defaults: Mapping[str, str]) -> SparkConf:
    """Return the configuration of Spark.

    :param settings: settings that replace all others.
    :param defaults: settings that apply if ``spark-defaults.conf`` and the environment have none.
    """
    SparkContext._ensure_initialized()  # Makes the JVM read spark-defaults.conf.
    found = SparkConf().setAll(list(settings.items()))
    for name, value in defaults.items():
        found.setIfMissing(name, value)
    return found


@contextlib.contextmanager
def quiet_interrupts() -> Iterator[None]:
    """Suppress the log lines and traces of Spark's bridge to Java about an interrupt, in a block."""
    for logger in _PY4J_LOGGERS:
        logger.addFilter(_is_no_interrupt)
    try:
        yield
    finally:
        for logger in _PY4J_LOGGERS:
            logger.removeFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    if record.exc_info and str(record.msg).endswith("while sending command."):
        return False
    error = record.exc_info[1] if record.exc_info else None
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is None


def is_local(master: str) -> bool:
    """Return True if the workers are processes of this machine, with its files and environment."""
    return master == "local" or master.startswith("local[")


def _local_settings() -> dict[str, str]:
    # This avoids a look-up of the host's own name, and keeps the ports of the driver off the network.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    _put_on_python_path(_PACKAGE.parent)
    return _cluster_settings() | {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": _LOCAL_JAVA_OPTIONS,
        "spark.ui.enabled": "false",
    }


def _local_defaults() -> dict[str, str]:
    workers_python = shutil.which(os.environ["PYSPARK_PYTHON"])
    own_jars, jars = (Path(home, "jars").resolve() for home in (Path(pyspark.__file__).parent, _find_spark_home()))
    # Another Python or Spark may have another pyspark, or none.
    return _DAEMON if workers_python == sys.executable and own_jars == jars else {}


def _cluster_settings() -> dict[str, str]:
    return {"spark.ui.showConsoleProgress": "false"}


def _put_on_python_path(folder: Path) -> None:
    known = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if str(folder) not in known:
        # Append it, so that no neighbour of the package hides an installed module.
        os.environ["PYTHONPATH"] = os.pathsep.join([*known, str(folder)])


def package_zip() -> str:
    """Make a zip file of the package, by both names, for ``--py-files`` or ``addPyFile``; removed when Python exits.

    Workers with the same Python and platform use the compiled modules, others the pure ones. Bytecode is added next to
    its source, since Python caches none for a zip file. Another Python ignores it.
    """
    folder = Path(tempfile.mkdtemp(prefix="loghub-producer-package-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = folder / _ARCHIVE
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as package:
        for path in sorted([*_PACKAGE.rglob("*"), *_PACKAGE.with_name("loghub").rglob("*")]):
            if path.is_file() and path.suffix not in _LEFT_OUT:
                name = path.relative_to(_PACKAGE.parent)
                package.write(path, name)
                if path.suffix == ".py" and name.parts[1] not in _NOT_IN_WORKERS:
                    package.writestr(str(name.with_suffix(".pyc")), _bytecode(path, name))
    return str(archive)


def _bytecode(path: Path, name: Path) -> bytes:
    module = ".".join(name.with_suffix("").parts).removesuffix(".__init__")
    code = SourceFileLoader(module, str(path)).get_code(module)
    return importlib.util.MAGIC_NUMBER + _UNCHECKED + marshal.dumps(code)
