"""The private parts of Python's ``re`` that this package stands on: the parser of patterns, its codes, the compiler.

The type checker does not know them, so they are imported by name.
"""

from __future__ import annotations

from importlib import import_module

parser = import_module("re._parser")
codes = import_module("re._constants")
compiler = import_module("re._compiler")
