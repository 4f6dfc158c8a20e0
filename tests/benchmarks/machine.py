"""Describe the machine and the versions that the figures depend on."""

import os
import platform
from importlib import metadata
from pathlib import Path

from producer.wire.speed import TWIN

#: The packages whose versions affect our figures.
_PACKAGES = ("lz4", "pyarrow")


def describe(peers: dict[str, str]) -> dict[str, str]:
    """Return the lines to write under a table, by heading."""
    producer = f"loghub-producer {metadata.version('loghub-producer')} ({TWIN} encoders)"
    ours = [f"{name} {metadata.version(name)}" for name in _PACKAGES]
    return {
        "CPU": f"{_line_of('/proc/cpuinfo', 'model name') or platform.processor()}, {os.cpu_count()} cores",
        "memory": f"{_memory() / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "ours": ", ".join([producer, *ours]),
        "peers": ", ".join(f"`{name}`: {version}" for name, version in peers.items()) or "none",
    }


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _line_of(path: str, name: str) -> str:
    """Return the value of ``name : value`` in a file of /proc, or an empty string."""
    if not Path(path).exists():
        return ""
    pairs = (line.partition(":") for line in Path(path).read_text().splitlines())
    return next((value.strip() for key, _, value in pairs if key.strip() == name), "")
