"""The Spark session of the job.

With a local master everything is set for a quick and quiet start on one machine. With any other master only what the
job needs is set, and the rest is left to ``spark-defaults.conf`` and the environment.

The package must be importable in the workers. Local workers get this process's path to it through ``PYTHONPATH`` (they
do not inherit ``sys.path``); others get the package as a zip file. What it depends on (requests, urllib3, tenacity,
lz4, zstandard) has to be installed there: compiled wheels cannot travel in a zip.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from pyspark.sql import SparkSession

from .java import use_java

#: Every core, and as many attempts for a task as on a cluster (``local[*]`` alone gives it one).
LOCAL_MASTER = "local[*,4]"

_PACKAGE = Path(__file__).resolve().parent.parent
_LOG4J = Path(__file__).with_name("log4j2.properties")

# A job that reads files in Python leaves the JVM little to do: a quick start is worth more than its best code.
_LOCAL_JAVA_OPTIONS = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j.configurationFile={_LOG4J.as_uri()}"


def build_session(*, master: str | None = None, app_name: str = "loghub-producer ship") -> SparkSession:
    """Start Spark, or return the session that this process already has.

    :param master: a Spark master URL; every core of this machine if left out.
    :raises JavaNotFoundError: there is no Java 17 or newer.
    """
    master = master or LOCAL_MASTER
    use_java()
    # Workers are this Python, with this environment's packages, not the first python3 on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in (_local_settings() if is_local(master) else _cluster_settings()).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if not is_local(master):
        session.sparkContext.addPyFile(package_zip())
    return session


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
    """The package as a zip file, for ``--py-files`` or ``addPyFile``; removed when this process exits."""
    folder = Path(tempfile.mkdtemp(prefix="loghub-producer-package-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = folder / "producer.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as package:
        for path in sorted(_PACKAGE.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                package.write(path, path.relative_to(_PACKAGE.parent))
    return str(archive)
