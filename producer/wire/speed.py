"""Which twins work: the compiled ones, where they were built, or the pure ones, which do the same.

``PRODUCER_PURE=1`` in the environment forces the pure ones. So does an interpreter without a global lock, for which the
compiled ones were not made.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import TYPE_CHECKING

from . import access_log, lines, log_group
from . import measure_lines as measures

if TYPE_CHECKING:
    from collections.abc import Callable

    from .access_log import AccessLines
    from .delimited import DelimitedLines
    from .json_objects import ObjectLines

__all__ = [
    "TWIN",
    "encode_lines",
    "encode_log",
    "measure_lines",
    "split_access",
    "split_delimited",
    "split_logfmt",
    "split_objects",
    "split_syslog",
]


def _wanted() -> bool:
    has_lock: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return os.environ.get("PRODUCER_PURE", "") in ("", "0") and has_lock()


#: ``native`` or ``pure``.
TWIN = "pure"
encode_lines, encode_log = lines.encode_lines, log_group.encode_log
measure_lines, split_access = measures.measure_lines, access_log.split_access
#: None: there is no pure twin but the parser of single lines; so with those behind it.
split_objects: Callable[[bytes | memoryview, bytes | memoryview], ObjectLines] | None = None
split_logfmt: Callable[[bytes | memoryview, bytes | memoryview], ObjectLines] | None = None
split_syslog: Callable[[bytes | memoryview, bytes | memoryview], AccessLines] | None = None
split_delimited: Callable[[bytes | memoryview, bytes | memoryview, int, int], DelimitedLines] | None = None

if _wanted():
    # Some are not there: there was no compiler, or this is a zip file, or what is compiled is from before.
    try:
        from . import _columns, _lines, _log_group  # noqa: F401  # one is wanted later
    except ImportError:
        pass
    else:
        TWIN = "native"
        encode_lines, encode_log = _lines.encode_lines, _log_group.encode_log
    with contextlib.suppress(ImportError):
        split_access = importlib.import_module("._access_log", __package__).split_access
    with contextlib.suppress(ImportError):
        split_objects = importlib.import_module("._json_objects", __package__).split_objects
    with contextlib.suppress(ImportError):
        split_logfmt = importlib.import_module("._logfmt", __package__).split_logfmt
    with contextlib.suppress(ImportError):
        split_syslog = importlib.import_module("._syslog", __package__).split_syslog
    with contextlib.suppress(ImportError):
        split_delimited = importlib.import_module("._delimited", __package__).split_delimited
    with contextlib.suppress(ImportError):
        measure_lines = importlib.import_module("._measure_lines", __package__).measure_lines
