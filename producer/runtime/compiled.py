"""Compiled: choose between the native and the pure implementations of a function, which behave the same.

``PRODUCER_PURE=1`` in the environment forces the pure ones. So does an interpreter without a global lock, for which the
native ones were not made.
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
    """Import a compiled module by its full name; None if it is not wanted or not usable.

    It may be missing because there was no compiler, or because it is for another Python, platform or version.
    """
    if not _WANTED:
        return None
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def either(module: str, name: str, pure: T) -> T:
    """Return ``name`` of a compiled module; ``pure`` if there is none."""
    chosen: T = getattr(compiled(module), name, pure)
    return chosen
