"""What forks Spark's Python workers (``spark.python.daemon.module``): pyspark's own daemon, from where pyspark is
installed, which imports what ships files before it forks, so that its workers need not.

Spark puts a zip file of pyspark before all else on the path of its workers. It holds sources alone, so that a daemon
compiles what it imports, each time: 0.6 s before the first line is shipped.
"""

from __future__ import annotations

import contextlib
import sys
import zipfile
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path, PurePath

# None of them starts a thread, or imports what does, as pyarrow: a fork would lose it.
_FOR_WORKERS = ("pyspark.worker", "producer.ship.spark_engine")
_VERSION = "pyspark/version.py"


def installed_first(path: Iterable[str]) -> list[str]:
    """The path, with Spark's own zip files as the last."""
    return sorted(path, key=_is_of_spark)


def has_same_pyspark(path: Sequence[str]) -> bool:
    """Whether the pyspark that is installed is the one of Spark's zip file."""
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
    """Import what workers will need; what is missing is told by the task that misses it."""
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
