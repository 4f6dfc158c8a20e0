"""Halve the start of Spark's processes: a class archive for JVMs, and a Spark home for Python workers.

Spark's classes are loaded once and kept in a file that a JVM maps into memory, a dynamic archive of class data sharing.
A JVM with another class path or version runs without it. So do all tests if the archive cannot be made, for instance
on an overloaded machine: the failure is reported, and the next run tries again.

A worker finds pyspark in a zip file below SPARK_HOME before the installed one, and compiles its imports from there each
time: a second for every worker and every daemon. The home that is made here has no such file.
"""

import contextlib
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from producer.ship.java import use_java

_INSTALLED = Path(pyspark.__file__).parent

#: JVM options for a quick start, at the cost of peak speed after minutes.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: Seconds after which tests continue without an archive that is still being made.
MAKING_SECONDS = 240.0

# Without these the JVM warns on stdout of each class that an archive cannot hold, and of archives of other JVMs.
_SILENT = "-Xlog:disable"

# A typical job of these tests: plans, generated code, Python workers of both kinds, data sources, streams.
_PROGRAM = """\
import sys

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceWriter, SimpleDataSourceStreamReader, WriterCommitMessage


class Writer(DataSourceWriter):
    def write(self, iterator):
        list(iterator)
        return WriterCommitMessage()


class Reader(SimpleDataSourceStreamReader):
    def initialOffset(self):
        return {"n": 0}

    def read(self, start):
        return iter([(start["n"],)]), {"n": 1}

    def readBetweenOffsets(self, start, end):
        return iter([(start["n"],)])


class Source(DataSource):
    @classmethod
    def name(cls):
        return "trial"

    def schema(self):
        return "n long"

    def writer(self, schema, overwrite):
        return Writer()

    def simpleStreamReader(self, schema):
        return Reader()


session = SparkSession.builder.getOrCreate()
session.dataSource.register(Source)
rows = session.range(0, 100, numPartitions=2).selectExpr("cast(id as string) as id", "md5(cast(id as string)) as hash")
rows.foreachPartition(list)
rows.mapInArrow(lambda batches: batches, rows.schema).selectExpr("count(*)", "sum(length(hash))").collect()
session.range(3).selectExpr("id AS n").write.format("trial").mode("append").save()
stream = session.readStream.format("trial").load().mapInArrow(lambda batches: batches, "n long")
stream.writeStream.format("noop").option("checkpointLocation", sys.argv[1]).trigger(availableNow=True).start()
session.streams.awaitAnyTermination()
session.stop()
"""


def spark_home() -> Path:
    """Return the Spark home of the environment, or else of the installed pyspark."""
    return Path(os.environ.get("SPARK_HOME") or _INSTALLED)


def lean_home(folder: Path) -> Path:
    """Make a Spark home in ``folder`` without the zip file that hides the installed pyspark."""
    home = folder / f"home-{hashlib.sha256(str(_INSTALLED).encode()).hexdigest()[:16]}"
    home.mkdir(exist_ok=True)
    for name in ("bin", "jars", "sbin"):
        with contextlib.suppress(FileExistsError):
            (home / name).symlink_to(_INSTALLED / name)
    return home


def java_environment() -> dict[str, str]:
    """Return this process's environment, with the Java that the SDK would find."""
    before = os.environ.copy()
    try:
        use_java()
        return dict(os.environ)
    finally:
        os.environ.clear()
        os.environ.update(before)


def sharing_options(folder: Path) -> str:
    """Return JVM options for a class archive in ``folder``, one for each Java and Spark version."""
    environment = java_environment()
    archive = folder / f"{_key(environment)}.jsa"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive, environment)
    return f"-XX:SharedArchiveFile={archive} {_SILENT}" if archive.exists() and archive.stat().st_size else ""


def _key(environment: dict[str, str]) -> str:
    java = str(Path(environment["JAVA_HOME"]) / "bin" / "java") if "JAVA_HOME" in environment else "java"
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    jars = spark_home() / "jars"
    return hashlib.sha256(f"{version} {jars} {jars.stat().st_mtime_ns} {_PROGRAM}".encode()).hexdigest()[:16]


def _make(archive: Path, environment: dict[str, str]) -> None:
    new, program = archive.with_suffix(".new"), archive.with_suffix(".py")
    new.unlink(missing_ok=True)
    program.write_text(_PROGRAM)
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[2]", "--driver-java-options", QUICK]
    with tempfile.TemporaryDirectory() as checkpoint:
        failure = _submit([*command, "--conf", "spark.ui.enabled=false", str(program), checkpoint], environment, new)
    if failure is not None:
        new.unlink(missing_ok=True)
        print(f"no archive of Spark's classes, its JVMs start slowly: {failure}", file=sys.stderr)
        return
    # A Java without an archive of its own classes makes none on top: the empty file avoids a second trial.
    new.touch()
    new.rename(archive)


def _submit(command: list[str], environment: dict[str, str], archive: Path) -> str | None:
    """Run a program of Spark; return its output if it failed."""
    with subprocess.Popen(
        command,
        env=environment
        | {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={archive} {_SILENT}",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said = process.communicate(timeout=MAKING_SECONDS)[1]
        except subprocess.TimeoutExpired:
            said = f"not made in {MAKING_SECONDS:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return None if process.returncode == 0 else said
