"""Builds the compiled twins of the encoders where it can; everything else stands in pyproject.toml.

Without a compiler, or Cython, the installation goes through, and the pure twins work. ``PRODUCER_BUILD=pure`` builds
none, ``PRODUCER_BUILD=native`` fails where one cannot be built, ``PRODUCER_BUILD=checked`` adds the sanitizers for
addresses and undefined behaviour.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

MODE = os.environ.get("PRODUCER_BUILD", "")
SOURCES = sorted(Path("producer").rglob("*.pyx"))
CHECKS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g1"]
# Cython drops const from pointers in between.
WARNINGS = ["-Wno-unreachable-code", "-Wno-unused-function", "-Wno-discarded-qualifiers"]
# Who asks for another optimization in CFLAGS, such as a test that has no time, gets that.
FAST = ["-g0"] if "-O" in os.environ.get("CFLAGS", "") else ["-O3", "-g0"]


class BuildExtensions(build_ext):
    """Says in one line what was not built."""

    def run(self) -> None:
        """Let Cython make its C only now: most commands, such as those for metadata, compile nothing."""
        try:
            from Cython.Build import cythonize  # noqa: PLC0415  # only where it compiles
        except ImportError:
            if MODE in ("native", "checked"):
                raise
            print("without Cython nothing is compiled: the pure Python twins are used", file=sys.stderr)
            self.extensions = []
            return
        # Kept where CYTHON_CACHE_DIR says, if it does: who builds several times need not wait for the same C each time.
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
        """For the sdist: no file that Cython made."""
        return sorted(map(str, Path("producer").rglob("*.p[yx][xd]")))


def modules() -> list[Extension]:
    """One a source; none where they would be of no use."""
    if MODE == "pure" or sysconfig.get_config_var("Py_GIL_DISABLED") or sys.implementation.name != "cpython":
        return []
    optional = MODE not in ("native", "checked")
    return [Extension(".".join(each.with_suffix("").parts), [str(each)], optional=optional) for each in SOURCES]


setup(ext_modules=modules(), cmdclass={"build_ext": BuildExtensions})
