"""The Spark session of the job.

With a local master everything is set for a quick and quiet start on one machine. With any other master only what the
job needs is set, and what its JVMs do better with where nobody has set it; the rest is left to ``spark-defaults.conf``
and the environment.

A job that needs no SQL gets a ``SparkContext`` alone: a session on top of it takes two seconds more.

The package must be importable in the workers. Local workers get this process's path to it through ``PYTHONPATH`` (they
do not inherit ``sys.path``); others get the package as a zip file. What it depends on (requests, urllib3, tenacity,
lz4, zstandard, regex) has to be installed there: compiled wheels cannot travel in a zip.
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
from pyspark.sql import SparkSession

from ..runtime.loggers import get_logger
from ..runtime.signals import handling
from .java import use_java
from .job import LOCAL_MASTER
from .jvm import Jvm, forget_in_environment, known_to_environment
from .numpy_values import convert_only_loaded

_log = get_logger("loghub.ship.session")

# What no worker needs.
_LEFT_OUT = (".pyc", ".pyx", ".pxd", ".pyi")
# What no worker imports, so that its bytecode stays behind.
_NOT_IN_WORKERS = {"agent", "cli", "integrations", "server"}
# Bytecode that is not compared with its source (PEP 552): the flags, and no digest.
_UNCHECKED = (1).to_bytes(4, "little") + bytes(8)
_ARCHIVE = "producer.zip"
_PACKAGE = Path(__file__).resolve().parent.parent
_LOG4J = _PACKAGE / "ship" / "log4j2.properties"

# A job that reads files in Python leaves the JVM little to do: a quick start is worth more than its best code, and the
# threads that would compile it take the cores from Python.
_QUICK_CODE = "-XX:TieredStopAtLevel=1"
_LOCAL_JAVA_OPTIONS = f"{_QUICK_CODE} -XX:+UseSerialGC -Dlog4j.configurationFile={_LOG4J.as_uri()}"
# The first of two collectors that are asked for ends a JVM: which it is, is left to others. Set where nobody has.
_EXECUTOR_DEFAULTS = {"spark.executor.defaultJavaOptions": _QUICK_CODE}

# As LOCAL_MASTER, where a task that failed is not run again.
_ONE_ATTEMPT_MASTER = "local[*]"

_DAEMON = {"spark.python.daemon.module": "producer.ship.python_daemon"}

# How long is waited for the first executor, seconds: as long as Spark itself waits for those that it is told to await.
_EXECUTOR_PATIENCE = 30.0
_POLL_SECONDS = 0.02
# Until then a wait is not worth a word.
_SILENT_SECONDS = 2.0


# Those to which Spark's bridge to Java logs what an interrupt did to it.
_PY4J_LOGGERS = [logging.getLogger(name) for name in (None, "py4j.clientserver", "py4j.java_gateway")]  # noqa: TID251  # py4j's own

# The JVM that this process has started; one serves all its sessions.
_jvms: list[Jvm] = []


def build_session(*, master: str | None = None, app_name: str = "loghub-producer ship") -> SparkSession:
    """Start Spark, or return the session that this process already has.

    When it is interrupted, nothing that it has started is left.

    :param master: a Spark master URL; every core of this machine if left out.
    :raises JavaNotFoundError: there is no Java 17 or newer.
    :raises SparkStartError: Java ended before Spark had started.
    """
    with _ended_on_failure():
        build_context(master=master, app_name=app_name)
        return SparkSession.builder.getOrCreate()


def build_context(
    *, master: str | None = None, app_name: str = "loghub-producer ship", sql: bool = True, one_attempt: bool = False
) -> SparkContext:
    """As :func:`build_session`, without what SQL needs. It returns when there is an executor.

    :param sql: whether SQL may come: if not, workers of a cluster are forked by the package's own daemon, too. Spark
        starts that also beside the driver when it plans a query, and there is no zip file of the package.
    :param one_attempt: True if Spark must not run a failed task again, where nobody has set how often it does.
    """
    master = master or (_ONE_ATTEMPT_MASTER if one_attempt else LOCAL_MASTER)
    use_java()
    # Workers are this Python, with this environment's packages, not the first python3 on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    local = is_local(master)
    settings = _local_settings() if local else _cluster_settings()
    defaults = _local_defaults() if local else _EXECUTOR_DEFAULTS | ({} if sql else _DAEMON)
    if one_attempt:
        defaults = {**defaults, "spark.task.maxFailures": "1"}
    settings |= {"spark.master": master, "spark.app.name": app_name}
    convert_only_loaded()
    with _ended_on_failure():
        _start(settings)
        context = SparkContext.getOrCreate(_configuration(settings, defaults))
        if not local:
            context.addPyFile(package_zip())
            _let_executors_find_package(context)
            if context.getConf().get("spark.dynamicAllocation.enabled", "false") != "true":  # they come with the work
                _wait_for_executor(context)
        return context


def _let_executors_find_package(context: SparkContext) -> None:
    """Tell where the zip file is before a worker runs: an executor keeps it in its own folder."""
    known = context.environment.get("PYTHONPATH", "")
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [known, f".{os.sep}{_ARCHIVE}"]))


def _wait_for_executor(context: SparkContext) -> None:
    """Wait for the first one, for a while."""
    begun, told = time.monotonic(), False
    spark: Any = context._jsc.sc()
    while len(spark.statusTracker().getExecutorInfos()) < 2:  # the driver is one
        waited = time.monotonic() - begun
        if waited >= _EXECUTOR_PATIENCE:
            return
        if waited >= _SILENT_SECONDS and not told:
            told = True
            _log.warning("Spark has no executor yet: is the cluster busy, or too small for what is asked of it?")
        time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def running_context(
    *, master: str | None = None, app_name: str = "loghub-producer ship", sql: bool = True, one_attempt: bool = False
) -> Iterator[SparkContext]:
    """As :func:`build_context`, for a block: when it is left, by an interrupt too, no process of Spark is left either.

    In the block SIGINT does what it did before, and not what Spark makes of it.
    """
    with quiet_interrupts():
        try:
            with handling({signal.SIGINT: signal.getsignal(signal.SIGINT)}):  # a new SparkContext replaces it
                context = build_context(master=master, app_name=app_name, sql=sql, one_attempt=one_attempt)
            try:
                yield context
            finally:
                _stop(context)
        finally:
            end_java()


def _stop(context: SparkContext) -> None:
    try:
        context.stop()
    except Exception as error:  # noqa: BLE001  (its JVM may be gone, or busy with what was interrupted; it is ended next)
        _log.info("Spark did not stop: %s", error)


def end_java() -> None:
    """End the JVM that this process has started, if there is one; a later session starts another."""
    while _jvms:
        try:
            _jvms[-1].end()
        finally:
            _jvms.pop()
            SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None


@contextlib.contextmanager
def _ended_on_failure() -> Iterator[None]:
    """End the JVM that the block has started, if it does not end well."""
    before = len(_jvms)
    try:
        yield
    except BaseException:
        if len(_jvms) > before:
            end_java()
        raise


def _start(settings: Mapping[str, str]) -> None:
    """Start Java, unless this process has it, or was given it."""
    if SparkContext._gateway is None and not known_to_environment():
        _jvms.append(Jvm(settings, _QUICK_CODE))
        try:
            _jvms[-1].tell_environment()
            SparkContext._ensure_initialized()
        finally:
            forget_in_environment()


def _configuration(settings: Mapping[str, str], defaults: Mapping[str, str]) -> SparkConf:
    """
    :param settings: of Spark.
    :param defaults: likewise, where ``spark-defaults.conf`` or the environment says nothing else.
    """
    SparkContext._ensure_initialized()  # what is said there is known to the JVM
    found = SparkConf().setAll(list(settings.items()))
    for name, value in defaults.items():
        found.setIfMissing(name, value)
    return found


@contextlib.contextmanager
def quiet_interrupts() -> Iterator[None]:
    """In the block Spark's bridge to Java logs no interrupt, nor what comes of one; it would with a trace."""
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
    """Whether the workers are processes of this machine, with this one's files and environment."""
    return master == "local" or master.startswith("local[")


def _local_settings() -> dict[str, str]:
    # Spares a look-up of the host's own name, and keeps the ports of the driver off the network.
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
    # Another Python may have another pyspark, or none; so may another Spark.
    return _DAEMON if workers_python == sys.executable and own_jars == jars else {}


def _cluster_settings() -> dict[str, str]:
    return {"spark.ui.showConsoleProgress": "false"}


def _put_on_python_path(folder: Path) -> None:
    known = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if str(folder) not in known:
        # Last, so that nothing installed is hidden by a neighbour of the package.
        os.environ["PYTHONPATH"] = os.pathsep.join([*known, str(folder)])


def package_zip() -> str:
    """The package as a zip file, for ``--py-files`` or ``addPyFile``; removed when this process exits.

    What is compiled works where Python and the kind of machine are those of this one, elsewhere the pure twins.
    Bytecode is beside its source, since Python keeps none of what it imports from a zip file; another Python passes it
    over.
    """
    folder = Path(tempfile.mkdtemp(prefix="loghub-producer-package-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = folder / _ARCHIVE
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as package:
        for path in sorted(_PACKAGE.rglob("*")):
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
