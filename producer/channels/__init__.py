"""Channels: where events wait, inside a transaction, from those who put to those who take."""

from ..interfaces import Event, Stored
from .memory import MemoryChannel

__all__ = ["Event", "MemoryChannel", "Stored"]
