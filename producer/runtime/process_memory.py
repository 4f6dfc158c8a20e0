"""Memory of this process, in bytes, as Linux reports it in ``/proc/self/statm``.

Other systems have no such file, and the figure is 0 there: on macOS ``max_memory_bytes`` of an agent does not slow its
sources, and monitoring shows 0. psutil knows the figure of macOS, but would be a package of 1 MB for one number.
The process for SQL reads the file itself, since it imports nothing of this package.
"""

from __future__ import annotations

import os


def resident_bytes() -> int:
    """Return the physical memory that this process uses; 0 if the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123  # not a user's file
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
