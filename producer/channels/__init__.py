"""Channels: transactional buffers for events between putting and taking threads."""

from ..model.interfaces import Event, Stored
from .file.channel import FileChannel
from .file.per_process import ProcessFileChannel
from .file.store.encryption import EnvironmentKeys, FileKeys, KeyProvider
from .memory import MemoryChannel
from .spillable import SpillableChannel

__all__ = [
    "EnvironmentKeys",
    "Event",
    "FileChannel",
    "FileKeys",
    "KeyProvider",
    "MemoryChannel",
    "ProcessFileChannel",
    "SpillableChannel",
    "Stored",
]
