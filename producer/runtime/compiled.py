"""Which twins work: what was compiled, where it was built, or what is pure Python, and does the same.

``PRODUCER_PURE=1`` in the environment forces the pure ones. So does an interpreter without a global lock, for which the
compiled ones were not made.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar
from zipimport import zipimporter

T = TypeVar("T")

_has_lock: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
_WANTED = os.environ.get("PRODUCER_PURE", "") in ("", "0") and _has_lock()


if isinstance(__spec__.loader, zipimporter):
    from .zip_extension_loader import import_from

    import_from(__spec__.loader, __spec__.parent.partition(".")[0])


def compiled(module: str) -> ModuleType | None:
    """A compiled module, by its full name; None where it is not wanted, or is not there: there was no compiler, it
    was for another Python or another kind of machine, or what is compiled is from before.
    """
    if not _WANTED:
        return None
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def either(module: str, name: str, pure: T) -> T:
    """``name`` of a compiled module; ``pure``, which does the same, where there is none."""
    twin: T = getattr(compiled(module), name, pure)
    return twin
