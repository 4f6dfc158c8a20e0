"""A Python for Spark workers that has the SDK's dependencies, but not the SDK."""

import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "producer"


def bare_python(folder: Path) -> Path:
    """Make an environment that shares this one's packages, and return its Python.

    A ``.pth`` file adds this environment's packages as a plain directory. So the ``.pth`` files in there, including
    that of the SDK's editable installation, have no effect.

    :param folder: the folder of the environment.
    :raises AssertionError: it can import the SDK, which was installed in another way.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    (site_packages(folder) / "shared.pth").write_text("".join(f"{path}\n" for path in sorted(packages)))
    python = folder / "bin" / "python"
    missing = _missing(python, "requests", "lz4", "regex", "pyspark", "pyarrow", "producer")
    assert missing == ["producer"], (
        f"the SDK is in site-packages, which the tests need without it (install it with -e), or more is not: {missing}"
    )
    return python


def environment_archive(folder: Path) -> Path:
    """Pack the environment of :func:`bare_python` with the SDK, for ``--archives``."""
    environment = folder / "environment"
    bare_python(environment)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, site_packages(environment) / "producer", ignore=ignored)
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(environment, ".")
    return archive


def site_packages(environment: Path) -> Path:
    """Return the folder of an environment's own packages."""
    return Path(sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)}))


def _missing(python: Path, *modules: str) -> list[str]:
    look = "import sys, importlib.util as i; print(*(name for name in sys.argv[1:] if i.find_spec(name) is None))"
    # Isolated: neither the working directory nor PYTHONPATH counts.
    done = subprocess.run([python, "-I", "-c", look, *modules], capture_output=True, text=True, check=True)
    return done.stdout.split()
