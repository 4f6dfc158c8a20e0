"""What the ends of open batches are made of: the compiled class, where ``wire/speed`` says so and it is there."""

from __future__ import annotations

from contextlib import suppress

from ...wire.speed import TWIN
from .open_records import OpenRecords

__all__ = ["OpenRecords"]

if TWIN == "native":
    with suppress(ImportError):
        from ._open_records import OpenRecords
