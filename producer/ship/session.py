"""The Spark session of the job.

With a local master everything is set for a quick and quiet start on one machine. With any other master only what the
job needs is set, and the rest is left to ``spark-defaults.conf`` and the environment.

The package must be importable in the workers. Local workers get this process's path to it through ``PYTHONPATH`` (they
do not inherit ``sys.path``); others get the package as a zip file. What it depends on (requests, urllib3, tenacity,
lz4, zstandard) has to be installed there: compiled wheels cannot travel in a zip.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from ..loggers import get_logger
from .java import use_java
from .job import LOCAL_MASTER
from .jvm import Jvm, forget_in_environment, held_interrupts, known_to_environment

_log = get_logger("producer.ship.session")

# What no worker needs.
_LEFT_OUT = (".pyc", ".pyx", ".pxd", ".pyi")
_PACKAGE = Path(__file__).resolve().parent.parent
_LOG4J = _PACKAGE / "ship" / "log4j2.properties"

# A job that reads files in Python leaves the JVM little to do: a quick start is worth more than its best code.
_LOCAL_JAVA_OPTIONS = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j.configurationFile={_LOG4J.as_uri()}"


# Those to which Spark's bridge to Java logs what an interrupt did to it.
_PY4J_LOGGERS = [logging.getLogger(name) for name in (None, "py4j.clientserver", "py4j.java_gateway")]  # noqa: TID251

# The JVM that this process has started; one serves all its sessions.
_jvms: list[Jvm] = []


def build_session(*, master: str | None = None, app_name: str = "loghub-producer ship") -> SparkSession:
    """Start Spark, or return the session that this process already has.

    When it is interrupted, nothing that it has started is left.

    :param master: a Spark master URL; every core of this machine if left out.
    :raises JavaNotFoundError: there is no Java 17 or newer.
    :raises SparkStartError: Java ended before Spark had started.
    """
    master = master or LOCAL_MASTER
    use_java()
    # Workers are this Python, with this environment's packages, not the first python3 on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = _local_settings() if is_local(master) else _cluster_settings()
    session = _start({"spark.master": master, "spark.app.name": app_name, **settings})
    if not is_local(master):
        session.sparkContext.addPyFile(package_zip())
    return session


@contextlib.contextmanager
def running_session(*, master: str | None = None, app_name: str = "loghub-producer ship") -> Iterator[SparkSession]:
    """As :func:`build_session`, for a block: when it is left, by an interrupt too, no process of Spark is left either.

    In the block SIGINT does what it did before, and not what Spark makes of it.
    """
    with quiet_interrupts():
        try:
            with _own_interrupts():
                session = build_session(master=master, app_name=app_name)
            try:
                yield session
            finally:
                _stop(session)
        finally:
            end_java()


def _stop(session: SparkSession) -> None:
    try:
        session.stop()
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


def _start(settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    if SparkContext._gateway is not None or known_to_environment():
        return builder.getOrCreate()
    try:
        with held_interrupts():  # or one could come between the start of a process and its name
            _jvms.append(Jvm(settings))
        _jvms[-1].tell_environment()
        return builder.getOrCreate()
    except BaseException:
        end_java()
        raise
    finally:
        forget_in_environment()


@contextlib.contextmanager
def _own_interrupts() -> Iterator[None]:
    """Put back what SIGINT did: a new SparkContext has it cancel jobs from within whatever runs at that moment."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


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
    """
    folder = Path(tempfile.mkdtemp(prefix="loghub-producer-package-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = folder / "producer.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as package:
        for path in sorted(_PACKAGE.rglob("*")):
            if path.is_file() and path.suffix not in _LEFT_OUT:
                package.write(path, path.relative_to(_PACKAGE.parent))
    return str(archive)
