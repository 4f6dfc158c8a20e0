"""Which twins work: the compiled ones, where they were built, or the pure ones, which do the same.

``PRODUCER_PURE=1`` in the environment forces the pure ones. So does an interpreter without a global lock, for which the
compiled ones were not made.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from . import access_log, lines, log_group

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TWIN", "encode_lines", "encode_log", "split_access"]


def _wanted() -> bool:
    has_lock: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return os.environ.get("PRODUCER_PURE", "") in ("", "0") and has_lock()


#: ``native`` or ``pure``.
TWIN = "pure"
encode_lines, encode_log = lines.encode_lines, log_group.encode_log
split_access = access_log.split_access

if _wanted():
    # Some are not there: there was no compiler, or this is a zip file, or what is compiled is from before.
    try:
        from . import _columns, _lines, _log_group  # noqa: F401  # one is wanted later
    except ImportError:
        pass
    else:
        TWIN = "native"
        encode_lines, encode_log = _lines.encode_lines, _log_group.encode_log
    try:
        from . import _access_log
    except ImportError:
        pass
    else:
        split_access = _access_log.split_access
