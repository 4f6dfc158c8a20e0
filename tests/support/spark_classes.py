"""Spark's classes, loaded once and kept as a file that a JVM maps into its memory: each further start costs half.

It is a dynamic archive of class data sharing. A JVM whose class path or version is not that of the archive runs without
it, and so does one that cannot make it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pyspark

from producer.ship.java import use_java

SPARK_HOME = Path(pyspark.__file__).parent

#: What lets a JVM be there soon, rather than fast after minutes.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# The JVM would warn, on stdout, of each class that an archive cannot hold, and of archives that are not its own.
_SILENT = "-Xlog:disable"

# What a job of these tests does: plans, generated code, Python workers of both kinds.
_PROGRAM = """\
from pyspark.sql import SparkSession

session = SparkSession.builder.getOrCreate()
rows = session.range(0, 100, numPartitions=2).selectExpr("cast(id as string) as id", "md5(cast(id as string)) as hash")
rows.foreachPartition(list)
rows.mapInArrow(lambda batches: batches, rows.schema).selectExpr("count(*)", "sum(length(hash))").collect()
session.stop()
"""


def java_environment() -> dict[str, str]:
    """The environment of this process, with the Java in it that the SDK would find."""
    before = os.environ.copy()
    try:
        use_java()
        return dict(os.environ)
    finally:
        os.environ.clear()
        os.environ.update(before)


def sharing_options(folder: Path) -> str:
    """Options for a JVM of Spark's: with the archive in ``folder``, which is made if it is not there.

    :param folder: where archives are kept, one for each Java and Spark.
    """
    environment = java_environment()
    archive = folder / f"{_key(environment)}.jsa"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive, environment)
    return f"-XX:SharedArchiveFile={archive} {_SILENT}" if archive.stat().st_size else ""


def _key(environment: dict[str, str]) -> str:
    java = str(Path(environment["JAVA_HOME"]) / "bin" / "java") if "JAVA_HOME" in environment else "java"
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    jars = SPARK_HOME / "jars"
    return hashlib.sha256(f"{version} {jars} {jars.stat().st_mtime_ns}".encode()).hexdigest()[:16]


def _make(archive: Path, environment: dict[str, str]) -> None:
    new, program = archive.with_suffix(".new"), archive.with_suffix(".py")
    new.unlink(missing_ok=True)
    program.write_text(_PROGRAM)
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]", "--driver-java-options", QUICK]
    done = subprocess.run(
        [*command, "--conf", "spark.ui.enabled=false", str(program)],
        env=environment
        | {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={new} {_SILENT}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # A Java that has no archive of its own classes makes none on top of it: an empty file, so as not to try again.
    new.touch()
    new.rename(archive)
