"""Which twins work: the compiled ones, where they were built, or the pure ones, which do the same.

``PRODUCER_PURE=1`` in the environment forces the pure ones. So does an interpreter without a global lock, for which the
compiled ones were not made.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from . import lines

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TWIN", "encode_lines"]


def _wanted() -> bool:
    has_lock: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return os.environ.get("PRODUCER_PURE", "") in ("", "0") and has_lock()


#: ``native`` or ``pure``.
TWIN = "pure"
encode_lines = lines.encode_lines

if _wanted():
    try:
        from . import _lines
    except ImportError:  # there was no compiler, or this is a zip file
        pass
    else:
        TWIN = "native"
        encode_lines = _lines.encode_lines
