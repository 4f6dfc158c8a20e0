"""Build the native encoders where possible, and a reproducible sdist; all other settings are in pyproject.toml.

Without a compiler or Cython the installation succeeds and uses the pure encoders. ``PRODUCER_BUILD=pure`` builds no
native encoder. ``PRODUCER_BUILD=native`` fails if one cannot be built. ``PRODUCER_BUILD=checked`` adds the sanitizers
for addresses and undefined behaviour.
"""

from __future__ import annotations

import gzip
import os
import sys
import sysconfig
import tarfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

MODE = os.environ.get("PRODUCER_BUILD", "")
SOURCES = sorted(Path("producer").rglob("*.pyx"))
CHECKS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g1"]
# Cython drops const from intermediate pointers.
WARNINGS = ["-Wno-unreachable-code", "-Wno-unused-function", "-Wno-discarded-qualifiers"]
# The time of each file of the sdist, as bdist_wheel takes it for the wheel; without it, the least that a zip can hold.
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))
# CFLAGS may ask for another optimization level, for instance in a test that needs a quick build.
FAST = ["-g0"] if "-O" in os.environ.get("CFLAGS", "") else ["-O3", "-g0"]


class BuildExtensions(build_ext):
    """A build step that reports in one line which extensions were not built."""

    def run(self) -> None:
        """Generate the C code here: most commands, such as those for metadata, compile nothing."""
        try:
            from Cython.Build import cythonize  # noqa: PLC0415  # only where it compiles
        except ImportError:
            if MODE in ("native", "checked"):
                raise
            print("Cython is not installed: the pure Python implementations are used", file=sys.stderr)
            self.extensions = []
            return
        # Cached in CYTHON_CACHE_DIR, if set: repeated builds do not generate the same C again.
        made_once = {"build_dir": "build/cython", "quiet": True, "cache": os.environ.get("CYTHON_CACHE_DIR")}
        for ext, made in zip(self.extensions, cythonize(modules(), **made_once), strict=True):
            ext.sources = made.sources
        self.parallel = self.parallel or os.cpu_count()
        super().run()

    def build_extension(self, ext: Extension) -> None:
        if self.compiler.compiler_type == "unix":
            ext.extra_compile_args += [*WARNINGS, *(["-O0", *CHECKS] if MODE == "checked" else FAST)]
            ext.extra_link_args += CHECKS if MODE == "checked" else []
        try:
            super().build_extension(ext)
        except Exception as error:
            if MODE in ("native", "checked"):
                raise
            print(f"{ext.name} was not compiled, the pure Python twin is used: {error}", file=sys.stderr)

    def get_source_files(self) -> list[str]:
        """Return the sources for the sdist, without the files that Cython generated."""
        return sorted(map(str, Path("producer").rglob("*.p[yx][xd]")))


class ReproducibleSdist(sdist):
    """A source distribution whose bytes depend only on the files' names, contents and executable bits."""

    def make_archive(self, base_name: str, *_args: object, base_dir: str, **_options: object) -> str:
        name = f"{base_name}.tar.gz"
        with gzip.GzipFile(name, "wb", mtime=EPOCH) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
            for path in sorted(map(str, Path(base_dir).rglob("*"))):
                archive.add(path, recursive=False, filter=anonymous)
        return name


def anonymous(file: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove the owner and the time, and all permissions but to execute."""
    executable = file.isdir() or file.mode & 0o100
    owner = {"uid": 0, "gid": 0, "uname": "", "gname": ""}
    return file.replace(mtime=EPOCH, mode=0o755 if executable else 0o644, deep=False, **owner)


def modules() -> list[Extension]:
    """Return one extension for each source; empty if extensions would not be used."""
    if MODE == "pure" or sysconfig.get_config_var("Py_GIL_DISABLED") or sys.implementation.name != "cpython":
        return []
    optional = MODE not in ("native", "checked")
    return [Extension(".".join(each.with_suffix("").parts), [str(each)], optional=optional) for each in SOURCES]


setup(ext_modules=modules(), cmdclass={"build_ext": BuildExtensions, "sdist": ReproducibleSdist})
