"""Forks Spark's Python workers (``spark.python.daemon.module``), with the modules that ship files already imported.

It runs pyspark's own daemon, from the installed pyspark. Spark puts a zip file of pyspark first on the path of its
workers. This file has only sources, so the daemon would compile each import: 0.6 s before the first line is shipped.
"""

from __future__ import annotations

import contextlib
import sys
import zipfile
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path, PurePath

# None of them starts a thread, or imports a package that does, such as pyarrow: a fork would lose the thread.
_FOR_WORKERS = ("pyspark.worker", "producer.ship.spark_engine")
_VERSION = "pyspark/version.py"


def installed_first(path: Iterable[str]) -> list[str]:
    """Return the path with Spark's own zip files last."""
    return sorted(path, key=_is_of_spark)


def has_same_pyspark(path: Sequence[str]) -> bool:
    """Return True if the installed pyspark has the version of Spark's zip file."""
    installed = next((each for part in path if (each := Path(part, _VERSION)).is_file()), None)
    own = next((part for part in path if _is_of_spark(part) and PurePath(part).name == "pyspark.zip"), None)
    if installed is None or own is None:
        return False
    try:
        with zipfile.ZipFile(own) as archive:
            return archive.read(_VERSION) == installed.read_bytes()
    except (OSError, KeyError, zipfile.BadZipFile):
        return False


def import_for_workers(names: Iterable[str] = _FOR_WORKERS) -> None:
    """Import the modules that workers need; a missing one is reported by the task that needs it."""
    for name in names:
        with contextlib.suppress(ImportError):
            import_module(name)


def _is_of_spark(part: str) -> bool:
    return part.endswith(".zip") and PurePath(part).parts[-3:-1] == ("python", "lib")


if __name__ == "__main__":
    if has_same_pyspark(sys.path):
        sys.path[:] = installed_first(sys.path)
    from pyspark.daemon import manager

    import_for_workers()
    manager()
